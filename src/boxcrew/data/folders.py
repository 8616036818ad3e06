"""Helpers for data sets in folders: names of splits, files below a folder, images by their stem."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_start

_SPLIT_NAMES = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "test": "test", "testing": "test",
}  # fmt: skip

_listings: ContextVar[dict[str, list[str]] | None] = ContextVar("listings", default=None)

_FIRST_FILES, _FIRST_FOLDERS = 4, 32  # that tell the format of a set


def split_of_folder(name: str) -> str | None:
    """Return the split that a folder name means: `train2017` -> train, `valid` -> val, else None."""
    if name[:1] not in "tTvV":
        return None  # at once, since it is asked for each of the names in a folder of images
    return _SPLIT_NAMES.get(name.lower().rstrip("0123456789"))


def split_of_file(stem: str) -> str | None:
    """Return the split in a file name: `instances_val2017` -> val; None unless exactly one is named."""
    splits = {split_of_folder(word) for word in re.split(r"[\W_]+", stem)} - {None}
    return splits.pop() if len(splits) == 1 else None


def split_of_path(path: Path, root: Path) -> str | None:
    """Return the split that a folder between `root` and the file is named after, or None."""
    folders = path.relative_to(root).parts[:-1]
    return next((split for split in map(split_of_folder, folders) if split), None)


def files_below(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """Return files with one of the suffixes (lower case) at any depth, sorted. Hidden ones are skipped."""
    wanted, files = frozenset(suffixes), list[str]()
    for parent, _, names in walk(folder):
        files += [f"{parent}{os.sep}{name}" for name in names if suffix_of(name) in wanted]
    return [Path(file) for file in sorted(files, key=lambda file: file.split(os.sep))]  # noqa: PTH206


def root_of_file(file: Path, folders: Collection[str]) -> Path:
    """Return the root of the set that an annotation file belongs to: its folder, or the one above if the
    folder has one of the names in `folders` (lower case) and no images.
    """
    folder = file.parent
    is_apart = folder.name.lower() in folders and not files_below(folder, IMAGE_SUFFIXES)
    return folder.parent if is_apart else folder


def walk(
    folder: Path, *, on_error: Callable[[OSError], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder from this one down with the names of its folders and files, like `os.walk`. Hidden
    ones are skipped. Links are followed, but no folder is visited twice. A caller may remove names from the
    list of folders to skip them. `on_error` is called for folders that cannot be listed.
    """
    seen = set[str]()
    for parent, folders, names in os.walk(folder, onerror=on_error, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        yield parent, folders, [name for name in names if not name.startswith(".")]


def suffix_of(name: str) -> str:
    """Return the suffix of a file name in lower case, with its dot. Ten times faster than `Path.suffix`."""
    dot = name.rfind(".")
    return name[dot:].lower() if dot > 0 else ""


def stem_of(name: str) -> str:
    return name.rpartition(".")[0] or name


def names_in(folder: Path) -> list[str]:
    """Return the sorted names in a folder; none if it does not exist or cannot be listed."""
    kept = _listings.get()
    if kept is not None and str(folder) in kept:
        return kept[str(folder)]
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        names = []
    if kept is not None:
        kept[str(folder)] = names
    return names


@contextmanager
def listing_once() -> Iterator[None]:
    """List each folder once inside, for `names_in`: a million names take a second, and to tell its format
    from others a set is looked at by each of them.
    """
    token = _listings.set({})
    try:
        yield
    finally:
        _listings.reset(token)


def first_files(folder: Path, suffix: str, *, depth: int) -> Iterator[Path]:
    """Yield some files with a suffix in the folder and, down to a depth, in some of the folders in it: enough
    to tell the format of a large set by, without a search of the whole tree.
    """
    names = names_in(folder)
    with_suffix = (name for name in names if suffix_of(name) == suffix and not name.startswith("."))
    yield from (folder / name for name in islice(with_suffix, _FIRST_FILES))
    if depth:
        for name in islice((name for name in names if "." not in name), _FIRST_FOLDERS):
            yield from first_files(folder / name, suffix, depth=depth - 1)


def beginning_of(file: Path) -> bytes:
    """Return the first 64 KiB of a file, without byte order mark and leading blanks, to tell its format by;
    nothing if it cannot be read.
    """
    try:
        return read_start(file, 65_536).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return b""


class ImageFinder:
    """Finds image files by folder and stem. Each folder is listed once."""

    def __init__(self) -> None:
        self._folders: dict[Path, dict[str, list[Path]]] = {}

    def find(self, folders: Iterable[Path], stem: str, name: str = "") -> Path | None:
        """Return the image `stem` of the first folder that has it; of several, the one called `name`."""
        for folder in folders:
            if images := self._listing(folder).get(stem):
                return next((image for image in images if image.name == name), images[0])
        return None

    def _listing(self, folder: Path) -> dict[str, list[Path]]:
        if folder not in self._folders:
            images = self._folders[folder] = dict[str, list[Path]]()
            for name in names_in(folder):
                if suffix_of(name) in IMAGE_SUFFIXES:
                    images.setdefault(stem_of(name), []).append(folder / name)
        return self._folders[folder]


def read_lines(path: Path) -> list[str]:
    """Return the lines that are not blank, stripped; `DataError` if the file is not text."""
    return list(numbered_lines(path).values())


def numbered_lines(path: Path) -> dict[int, str]:
    """Return the lines of `read_lines` by their line numbers, which start at 1."""
    lines = enumerate(map(str.strip, read_utf8(path).splitlines()), start=1)
    return {number: line for number, line in lines if line}


def read_utf8(path: Path) -> str:
    """Return the content without byte order mark, every line end as a newline; `DataError` if not UTF-8."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{path}: cannot be read: {reason}", advice="give a text file") from error
    except UnicodeDecodeError as error:
        byte = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise DataError(f"{path}: is not UTF-8: {byte}", advice="save it as UTF-8") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def require_folder(path: Path, format: str) -> None:
    if not path.is_dir():
        raise DataError(f"{path}: no such folder", advice=f"give the folder of the {format} data set")
