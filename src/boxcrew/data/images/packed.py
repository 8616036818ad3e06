"""Image files inside an archive that is not compressed, read where they are."""

from __future__ import annotations

import errno
import os
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # O_BINARY exists on Windows only


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file inside an archive: a span of its bytes. It can do what readers of images ask of a `Path`."""

    archive: Path
    name: str  # in the archive, with forward slashes
    start: int
    size: int
    checksum: int | None = None  # CRC-32 of the content, where it is known

    def __str__(self) -> str:
        return f"{self.archive}{os.sep}{self.name}"

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def is_file(self) -> bool:
        return self.archive.is_file()

    def read_bytes(self) -> bytes:
        """Return the content; `OSError` if it is not the one that was packed."""
        data = self.read_part(0, self.size)
        if self.checksum is not None and zlib.crc32(data) != self.checksum:
            raise ChangedContentError(self)
        return data

    def read_part(self, start: int, num_bytes: int) -> bytes:
        """Return bytes from `start` on, fewer if the file ends before."""
        return read_part(self.archive, self.start + start, max(0, min(num_bytes, self.size - start)))

    def read_ends(self, num_first: int, num_last: int) -> tuple[bytes, bytes]:
        """Return the first and the last bytes, which may overlap."""
        return _read_ends(self.archive, self.start, self.size, num_first, num_last)


class ChangedContentError(OSError):
    """The bytes in an archive are not those that were packed."""

    def __init__(self, file: PackedFile) -> None:
        super().__init__(errno.EIO, f"{file.archive.name} has other bytes there than were packed")


ImagePath = Path | PackedFile
"""Where an image is stored: in a file of its own, or in an archive."""


def read_part(path: str | Path, start: int, num_bytes: int) -> bytes:
    """Return some bytes of a file, by system calls: to make a file object takes longer than to read a small
    file.
    """
    file = os.open(path, _READ_ONLY)
    try:
        os.lseek(file, start, os.SEEK_SET)
        data = os.read(file, num_bytes)
        while len(data) < num_bytes and (more := os.read(file, num_bytes - len(data))):
            data += more  # some file systems return less than requested
        return data
    finally:
        os.close(file)


def read_ends(path: ImagePath, num_first: int, num_last: int) -> tuple[bytes, bytes, int]:
    """Return the first and the last bytes of a file, which may overlap, and its size."""
    if isinstance(path, PackedFile):
        return *path.read_ends(num_first, num_last), path.size
    file = os.open(str(path), _READ_ONLY)
    try:
        size = os.fstat(file).st_size
        return *_ends_of(file, 0, size, num_first, num_last), size
    finally:
        os.close(file)


def _read_ends(path: Path, start: int, size: int, num_first: int, num_last: int) -> tuple[bytes, bytes]:
    file = os.open(str(path), _READ_ONLY)
    try:
        return _ends_of(file, start, size, num_first, num_last)
    finally:
        os.close(file)


def _ends_of(file: int, start: int, size: int, num_first: int, num_last: int) -> tuple[bytes, bytes]:
    os.lseek(file, start, os.SEEK_SET)
    head = os.read(file, min(num_first, size))
    os.lseek(file, start + max(0, size - num_last), os.SEEK_SET)
    return head, os.read(file, min(num_last, size))
