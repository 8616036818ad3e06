"""The numbers of a run over its steps, in rows of which there are never too many."""

from __future__ import annotations

import json
import secrets
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from boxcrew.serve.watch.reading import GrowingFile, finite

MAX_ROWS = 1500
MAX_NAMES = 400
_POSITION = ("step", "epoch", "time")
_RECENT = 20  # rows that say how fast a run is

Cell = float | None
_generations = count(secrets.randbelow(1 << 31))  # not those of a server that was there before


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The rows of a table that a reader has already."""

    generation: int
    num_rows: int

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Read `GENERATION:ROWS`; anything else is a reader that has nothing."""
        generation, _, rows = text.partition(":")
        if generation.isdecimal() and rows.isdecimal() and len(text) < 20:
            return cls(generation=int(generation), num_rows=int(rows))
        return cls(generation=-1, num_rows=0)


class MetricTable:
    """Rows of numbers in the order of their steps. If there are too many, neighbors become their mean."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self.clear()

    def clear(self) -> None:
        self._generation = next(_generations)  # readers get all rows again
        self._names: dict[str, int] = {name: i for i, name in enumerate(_POSITION)}
        self._rows: list[list[Cell]] = []
        self._stride = 1  # rows of the file that one row here is the mean of
        self._pending: list[list[Cell]] = []
        self._recent = deque[Mapping[str, float]](maxlen=_RECENT)
        self._extremes: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {}

    @property
    def last(self) -> Mapping[str, float]:
        """The last row, which is never a mean; empty if there is none."""
        return self._recent[-1] if self._recent else {}

    def add(self, row: Mapping[str, float]) -> None:
        for name in row:
            if name not in self._names and len(self._names) < MAX_NAMES and len(name) <= 200:
                self._names[name] = len(self._names)
        self._recent.append(row)
        self._note_extremes(row)
        self._pending.append([row.get(name) for name in self._names])
        if len(self._pending) == self._stride:
            self._rows.append(_mean(self._pending))
            self._pending = []
        if len(self._rows) > self._max_rows:
            pairs = zip(self._rows[::2], self._rows[1::2], strict=False)
            odd = self._rows[-1:] if len(self._rows) % 2 else []
            self._rows = [*map(_mean, pairs)]
            self._pending = [row for row in odd for _ in range(self._stride)]
            self._stride *= 2
            self._generation = next(_generations)

    def best(self, name: str, *, higher: bool) -> tuple[float, float] | None:
        """Return the best value of all rows that were ever added, and its step."""
        extremes = self._extremes.get(name)
        return None if extremes is None else extremes[int(higher)]

    def recent(self, name: str) -> float | None:
        """Return the median of the last rows that have this number."""
        values = [row[name] for row in self._recent if name in row]
        return statistics.median(values) if values else None

    def after(self, cursor: Cursor) -> dict[str, object]:
        """Return the rows that a reader lacks; all of them if it has those of another generation."""
        is_same = cursor.generation == self._generation and cursor.num_rows <= len(self._rows)
        first = cursor.num_rows if is_same else 0
        return {
            "generation": self._generation,
            "from": first,
            "names": list(self._names),
            "rows": [[_short(value) for value in row] for row in self._rows[first:]],
        }

    def _note_extremes(self, row: Mapping[str, float]) -> None:
        step = row.get("step", 0.0)
        for name in row.keys() & self._names.keys():
            value = row[name]
            low, high = self._extremes.get(name, ((value, step), (value, step)))
            self._extremes[name] = (min(low, (value, step)), high if high[0] > value else (value, step))


def _mean(rows: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Return the mean of each column; later rows may have more of them."""
    if len(rows) == 1:
        return list(rows[0])
    columns = [[row[i] for row in rows if i < len(row)] for i in range(max(map(len, rows)))]
    known = [[value for value in column if value is not None] for column in columns]
    return [statistics.fmean(column) if column else None for column in known]


def _short(value: Cell) -> Cell:
    return None if value is None else float(f"{value:.6g}")


class RunCurves:
    """The content of `metrics.jsonl`: the numbers of training steps, and those of evaluations."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self.training, self.evaluations = MetricTable(), MetricTable()
        self.num_damaged = 0
        self.is_behind = False  # a large file is read in parts

    def update(self) -> None:
        part = self._file.read()
        self.is_behind = part.has_more
        if part.restarted:
            self.training.clear()
            self.evaluations.clear()
            self.num_damaged = 0
        for line in part.lines:
            row = _row(line)
            if row is None:
                self.num_damaged += 1
            else:  # rows of training steps have a learning rate
                (self.training if "rate" in row else self.evaluations).add(row)


def _row(line: bytes) -> dict[str, float] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    numbers = {name: number for name, value in values.items() if (number := finite(value)) is not None}
    return numbers if "step" in numbers else None
