"""Image files inside an archive that is not compressed, read where they are."""

from __future__ import annotations

import os
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

    def __str__(self) -> str:
        return f"{self.archive}{os.sep}{self.name}"

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def is_file(self) -> bool:
        return self.archive.is_file()

    def read_bytes(self) -> bytes:
        return self.read_part(0, self.size)

    def read_part(self, start: int, num_bytes: int) -> bytes:
        """Return bytes from `start` on, fewer if the file ends before."""
        return read_part(self.archive, self.start + start, max(0, min(num_bytes, self.size - start)))


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
    packed = path if isinstance(path, PackedFile) else None
    file = os.open(packed.archive if packed else str(path), _READ_ONLY)
    try:
        start, size = (packed.start, packed.size) if packed else (0, os.fstat(file).st_size)
        os.lseek(file, start, os.SEEK_SET)
        head = os.read(file, min(num_first, size))
        os.lseek(file, start + max(0, size - num_last), os.SEEK_SET)
        return head, os.read(file, min(num_last, size)), size
    finally:
        os.close(file)
