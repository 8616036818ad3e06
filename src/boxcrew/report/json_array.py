"""A JSON array that is written item by item, so that its items need not be kept in memory."""

from __future__ import annotations

import json
from collections.abc import Callable


class JsonArray:
    """Writes an array with one item on each line. `start` and `end` stand around it, and make it a part of a
    larger document; what was written is valid JSON after `close`.
    """

    def __init__(self, write: Callable[[str], object], *, start: str = "[", end: str = "]\n") -> None:
        self._write, self._end = write, end
        self._num = 0
        write(start)

    def add(self, item: object) -> None:
        text = json.dumps(item, ensure_ascii=False, allow_nan=False)
        self._write(f",\n{text}" if self._num else f"\n{text}")
        self._num += 1

    def close(self) -> None:
        self._write(f"\n{self._end}" if self._num else self._end)
