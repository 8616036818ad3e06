"""Finds the image files of a set by the names that annotation files give them.

Tools write names as they saw them: relative to the project, absolute on another machine, with backslashes, or
as a URL of their server. A file where the name says so is taken; otherwise the only file of the set with the
same base name is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, unquote, urlsplit

from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.folders import files_below
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-")  # Label Studio puts it before the names of uploaded files


class ImageIndex:
    """The image files below the root of a set, which are listed only if a name does not say where it is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, name: str, folders: Iterable[Path] = ()) -> Path | tuple[ProblemKind, str]:
        """Return the image called `name`, or the kind and the message of the problem.

        The name is looked for in `folders`, then in the root. It is never followed out of the set.
        """
        relative = PurePosixPath(_local_name(name))
        for folder in (*folders, self.root):
            path = folder / relative
            if ".." in relative.parts or relative.is_absolute():
                path = Path(os.path.normpath(path))
            is_inside = path.is_relative_to(self.root) and ".." not in path.relative_to(self.root).parts
            if is_inside and os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for very long names
                return path
        for base in dict.fromkeys((relative.name, _UPLOAD_PREFIX.sub("", relative.name, count=1))):
            matches = self._by_name.get(base.casefold(), [])
            if len(matches) == 1:
                return matches[0]
            if matches:
                first, second = (match.relative_to(self.root).as_posix() for match in matches[:2])
                return "ambiguous-image", f"{name} may be {first} or {second}"
        return "missing-file", f"there is no image file {name}"

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        by_name: dict[str, list[Path]] = {}
        for file in files_below(self.root, IMAGE_SUFFIXES):
            by_name.setdefault(file.name.casefold(), []).append(file)
        return by_name


def _local_name(name: str) -> str:
    """Return the path in a name that may be a URL or a path of Windows."""
    if "://" in name or "?" in name:
        try:
            url = urlsplit(name)
        except ValueError:
            return name
        local = parse_qs(url.query).get("d", [url.path])[0]  # Label Studio: /data/local-files/?d=folder/a.jpg
        return unquote(local).lstrip("/")
    path = name.replace("\\", "/")
    return path.partition(":/")[2] if re.match(r"[A-Za-z]:/", path) else path
