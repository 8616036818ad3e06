"""The lines of a run's log: the last ones, and those that tell the reader to do something."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

from boxcrew.serve.watch.reading import GrowingFile

_LAST, _NOTICES = 60, 20
_LONGEST = 600  # letters
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
_NOTICE = re.compile(rf"{_TIME}((?:advice|warning): .*)")
_COMPARISON = re.compile(rf"{_TIME}(predicted .+; measured .+)")


class Log:
    """The content of `train.log`."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._clear()

    def _clear(self) -> None:
        self.last: deque[str] = deque(maxlen=_LAST)
        self._notices: dict[str, None] = {}
        self.comparison: str | None = None  # of the first steps with the plan

    @property
    def notices(self) -> list[str]:
        """The newest lines that give advice or warn, each once."""
        return list(self._notices)[-_NOTICES:]

    def update(self) -> None:
        part = self._file.read()
        if part.restarted:
            self._clear()
        for line in part.lines:
            text = line[: 4 * _LONGEST].decode(errors="replace")[:_LONGEST]
            self.last.append(text)
            if match := _NOTICE.match(text):
                self._notices.pop(match[1], None)
                self._notices[match[1]] = None
                if len(self._notices) > 2 * _NOTICES:
                    self._notices = dict.fromkeys(self.notices)
            elif match := _COMPARISON.match(text):
                self.comparison = match[1]
