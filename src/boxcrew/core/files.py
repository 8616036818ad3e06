"""Writing files so that a reader never sees an incomplete one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from boxcrew.core.fence import require_own


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then rename it to `path`. If that fails, the old file stays."""
    require_own(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        require_own(path)  # once more: the process may have been stopped for long
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file, or the list of a directory's files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write_bytes(_encoded(text)))


def _encoded(text: str) -> bytes:
    """Encode as UTF-8, with escapes that JSON has too for what cannot be, such as some names of files."""
    return text.encode(errors="backslashreplace")


def append(path: Path, text: str) -> None:
    """Add all of `text` to a file, or none of it."""
    require_own(path)
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            write_all(file, _encoded(text))
        except OSError:
            file.truncate(size)
            raise


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all data to an unbuffered file, which may accept less at a time than it is given."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
