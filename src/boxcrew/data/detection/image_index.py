"""Finds the image files of a set by the names that annotation files give them.

Tools write names as they saw them: relative to the project, absolute on another machine, with backslashes, or
as a URL of their server. A file where the name says so is taken; otherwise the only file of the set with the
same base name is, or, of several, the one whose folders are named alike.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.folders import files_below
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-")  # Label Studio puts it before the names of uploaded files
_MAX_SHOWN = 80  # characters of a name in a message: images may be embedded as data URLs


class ImageIndex:
    """The image files below the root of a set, which are listed only if a name does not say where it is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, name: str, folders: Iterable[Path] = ()) -> Path | tuple[ProblemKind, str]:
        """Return the image called `name`, or the kind and the message of the problem.

        The name is looked for in `folders`, then in the root. It is never followed out of the set.
        """
        names = [PurePosixPath(local) for local in _local_names(name)]
        for folder in (*folders, self.root):
            for relative in names:
                if path := self._file_in(folder, relative):
                    return path
        for relative in names:
            for base in dict.fromkeys((relative.name, _UPLOAD_PREFIX.sub("", relative.name, count=1))):
                if matches := self._by_name.get(_folded(base), []):
                    return self._only(matches, relative) or self._ambiguous(name, matches)
        return "missing-file", f"there is no image file {_shown(name)}"

    def _file_in(self, folder: Path, relative: PurePosixPath) -> Path | None:
        path = folder / relative
        if ".." in relative.parts or relative.is_absolute():
            path = Path(os.path.normpath(path))
        is_inside = path.is_relative_to(self.root) and ".." not in path.relative_to(self.root).parts
        # Not `Path.is_file`, which raises an error if the name is too long.
        return path if is_inside and os.path.isfile(path) else None  # noqa: PTH113

    def _only(self, matches: list[Path], relative: PurePosixPath) -> Path | None:
        """Return the match that has the most folders in common with the name, counted from its end, or None
        if several have.
        """
        common = [_num_common(match.relative_to(self.root), relative) for match in matches]
        best = [match for match, num in zip(matches, common, strict=True) if num == max(common)]
        return best[0] if len(best) == 1 else None

    def _ambiguous(self, name: str, matches: list[Path]) -> tuple[ProblemKind, str]:
        first, second = (match.relative_to(self.root).as_posix() for match in matches[:2])
        return "ambiguous-image", f"{_shown(name)} may be {first} or {second}"

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        by_name: dict[str, list[Path]] = {}
        for file in files_below(self.root, IMAGE_SUFFIXES):
            by_name.setdefault(_folded(file.name), []).append(file)
        return by_name


def _folded(name: str) -> str:
    """Return a name for comparisons. macOS writes accents as characters of their own; others do not."""
    return unicodedata.normalize("NFC", name).casefold()


def _num_common(path: Path, name: PurePosixPath) -> int:
    pairs = zip(reversed(path.parts), reversed(name.parts), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if _folded(a) != _folded(b)), len(path.parts))


def _shown(name: str) -> str:
    return name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…"


def _local_names(name: str) -> Iterator[str]:
    """Yield the paths that a name may mean, which may be a URL or a path of Windows."""
    if name.startswith("data:"):
        return
    path = name.replace("\\", "/")
    local = path.partition(":/")[2] if re.match(r"[A-Za-z]:/", path) else path
    if "://" not in name:
        yield local
    if "://" in name or "?" in name:
        try:
            url = urlsplit(name)
        except ValueError:
            return
        local = _queried(url.query) or unquote(url.path)
        yield (urlsplit(local).path if "://" in local else local).lstrip("/")
    elif "%" in name:
        yield unquote(local)


def _queried(query: str) -> str:
    """Return the path in a query of Label Studio: `d=folder/a.jpg` for local files, `fileuri=` with the
    address in base 64 for cloud storage.
    """
    values = parse_qs(query)
    if "fileuri" in values:
        try:
            return base64.b64decode(values["fileuri"][0] + "==").decode()
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return values.get("d", [""])[0]
