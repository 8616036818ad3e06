"""Stamps of files, which tell whether one has changed since it was read."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from boxcrew.core.types import Ints
from boxcrew.data.images.packed import ImagePath, PackedFile

FileStamp = tuple[int, int, int]
"""(size in bytes, mtime, ctime), times in nanoseconds. The ctime reveals an edit that sets the mtime back."""

NO_FILE: FileStamp = (-1, -1, -1)


def file_stamp(path: ImagePath) -> FileStamp | None:
    """Return the stamp of a file, or None if it does not exist or may not be read. A file in an archive has
    the times of the archive.
    """
    packed = path if isinstance(path, PackedFile) else None
    size, *times = _stamp(str(packed.archive if packed else path))
    return None if size < 0 else (packed.size if packed else size, times[0], times[1])


def stamp_array(paths: Iterable[str]) -> Ints:
    """Return the stamps of many files, (n, 3); a file that does not exist has negative ones."""
    flat = list[int]()
    for path in paths:
        flat += _stamp(path)
    return np.array(flat, dtype=np.int64).reshape(-1, 3)


def _stamp(path: str) -> FileStamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - a `Path` for each of a million files takes longer than this
    except (OSError, ValueError):
        return NO_FILE
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
