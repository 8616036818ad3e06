"""Reading files that another process is writing. They may be cut, damaged or gone: that is never an error."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

MAX_JSON = 8 << 20  # bytes of a file that is read whole
MAX_PART = 4 << 20  # bytes that are read of a growing file at once
_MARK = 64  # bytes before the end of what was read, which tell whether a file is still the same


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader | None]:
    """Open a regular file; None for anything else: a pipe would block, a link may lead anywhere."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError):
        yield None
        return
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        yield None
        return
    with os.fdopen(handle, "rb") as file:
        yield file


def is_file(path: Path) -> bool:
    """Return whether there is a file that may be seen."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Return whether there is a folder that may be seen."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


class JsonRecord:
    """A JSON object that may hold anything: what is asked for has the type asked for, or is None."""

    def __init__(self, value: object = None) -> None:
        self._entries: dict[object, object] = value if isinstance(value, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def value(self, *keys: str) -> object:
        """Return what stands under nested keys."""
        value: object = self._entries
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def number(self, *keys: str) -> float | None:
        return finite(self.value(*keys))

    def text(self, *keys: str, limit: int = 1000) -> str | None:
        value = self.value(*keys)
        return value[:limit] if isinstance(value, str) else None

    def record(self, *keys: str) -> JsonRecord:
        return JsonRecord(self.value(*keys))

    def records(self, *keys: str, limit: int = 500) -> list[JsonRecord]:
        value = self.value(*keys)
        return [JsonRecord(item) for item in value[:limit]] if isinstance(value, list) else []

    def numbers(self, *keys: str) -> dict[str, float]:
        """Return the numbers of an object by their names."""
        pairs = ((str(key), finite(value)) for key, value in self.record(*keys)._entries.items())
        return {key: value for key, value in pairs if value is not None}


def finite(value: object) -> float | None:
    """Return a number that can be drawn, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


class JsonFile:
    """A JSON file that is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_damaged = False
        self._seen: tuple[int, int, int] | None = None
        self._record = JsonRecord()

    def read(self) -> JsonRecord:
        """Return its content; an empty record if there is none, or if it is damaged."""
        with opened(self.path) as file:
            if file is None:
                self._seen, self._record, self.is_damaged = None, JsonRecord(), False
                return self._record
            now = os.fstat(file.fileno())
            signature = (now.st_ino, now.st_size, now.st_mtime_ns)
            if signature != self._seen:
                self._seen, self._record = signature, self._parse(file.read(MAX_JSON + 1))
        return self._record

    def _parse(self, content: bytes) -> JsonRecord:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):  # also a file that is too large, and was cut
            value = None
        self.is_damaged = not isinstance(value, dict)
        return JsonRecord(value)


@dataclass(frozen=True, kw_only=True)
class NewLines:
    """The next lines of a growing file."""

    lines: list[bytes]
    restarted: bool  # the file is another one, or was cut: they are its first
    has_more: bool  # the end of the file was not reached


class GrowingFile:
    """A file of lines, of which each is read once; a last line without an end waits until it has one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._mark = b""
        self._is_inside = False  # of a line that is too long, and left out

    def read(self) -> NewLines:
        with opened(self._path) as file:
            if file is None:
                return NewLines(lines=[], restarted=False, has_more=False)
            restarted = self._restart_if_other(file)
            file.seek(self._offset)
            content = file.read(MAX_PART)
            size = os.fstat(file.fileno()).st_size
        lines = self._complete_lines(content)
        return NewLines(
            lines=lines, restarted=restarted, has_more=self._offset < size and len(content) == MAX_PART
        )

    def _restart_if_other(self, file: BufferedReader) -> bool:
        now = os.fstat(file.fileno())
        identity = (now.st_dev, now.st_ino)
        file.seek(max(0, self._offset - len(self._mark)))
        is_same = identity == self._identity and file.read(len(self._mark)) == self._mark
        is_first, self._identity = self._identity is None, identity
        if not is_same:
            self._offset, self._mark, self._is_inside = 0, b"", False
        return not is_same and not is_first

    def _complete_lines(self, content: bytes) -> list[bytes]:
        end = content.rfind(b"\n") + 1
        if not end and len(content) < MAX_PART:
            return []
        kept = content[: end or len(content)]
        self._offset += len(kept)
        self._mark = (self._mark + kept[-_MARK:])[-_MARK:]
        lines = kept.split(b"\n")[:-1] if end else []
        lines = lines[1:] if self._is_inside else lines
        self._is_inside = not end
        return lines
