"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path`, then puts it in its place in one move. If that fails,
    what stood at `path` stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Waits until a file, or what a directory lists, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: object) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write_bytes(_encoded(text)))


def _encoded(text: str) -> bytes:
    """With escapes, which JSON has too, for what UTF-8 has not, as in names of files that are not UTF-8."""
    return text.encode(errors="backslashreplace")


def append(path: Path, text: str) -> None:
    """Adds all of `text` to a file, or none of it."""
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            write_all(file, _encoded(text))
        except OSError:
            file.truncate(size)
            raise


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """A file without a buffer may take less at once than it is given."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
