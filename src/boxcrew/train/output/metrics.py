"""The numbers of a run, written as they come: `metrics.jsonl`, `results.csv` and TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boxcrew.core.files import append, flush, write_text
from boxcrew.core.units import counted
from boxcrew.train.loop.schedule import Progress
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.tensorboard import TensorBoardLog

Row = dict[str, float]


class MetricsWriter:
    """Writes a line of `metrics.jsonl` for each set of numbers, and one of `results.csv` for an evaluation.

    A run resumed from a checkpoint removes the lines after it, so that none is there twice. Lines that do not
    fit on a full disk are tried again with the next.
    """

    def __init__(
        self, folder: Path, *, tensorboard: TensorBoardLog, files: BestEffort, from_step: int
    ) -> None:
        self._tensorboard = tensorboard
        self._files = files
        self._lines = folder / "metrics.jsonl"
        self._table = folder / "results.csv"
        self._pending = ""  # lines that are not in the file yet
        self.results: list[Row] = []
        self.trained_to = 0  # the step of the last line of training
        self._keep_until(from_step)

    def forget_after(self, step: int) -> None:
        """Remove all numbers of later steps."""
        self._keep_until(step)
        self._tensorboard.forget_after(step)

    def add(self, progress: Progress, seconds: float, numbers: Mapping[str, float]) -> Row:
        """Write a line. `seconds` are those of training so far. Numbers that are not finite are left out."""
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        row = {"step": progress.step, "epoch": round(progress.epoch, 4), "time": round(seconds, 3), **finite}
        if "rate" in numbers:
            self.trained_to = progress.step
        self._pending += json.dumps(row) + "\n"
        self.flush()
        for name, value in numbers.items():
            self._tensorboard.add_scalar(name, value, progress.step)
        return row

    def flush(self) -> None:
        """Write the pending lines, if there is room."""
        if self._pending:
            with self._files.writing(self._lines.name):
                append(self._lines, self._pending)
                self._pending = ""

    def sync(self) -> None:
        """Wait until the lines are on disk. It may be called from another thread."""
        if self._lines.is_file():
            flush(self._lines)
        self._tensorboard.sync()

    def add_result(self, progress: Progress, seconds: float, numbers: Mapping[str, float]) -> None:
        """Add the numbers of an evaluation, unless the run already has it: a kill can come between an
        evaluation that was made up for and the next checkpoint.
        """
        if any(row["step"] == progress.step for row in self.results):
            return
        self.results.append(self.add(progress, seconds, numbers))
        self._write_table()

    def _keep_until(self, step: int) -> None:
        self.flush()
        pending = self._pending.splitlines(keepends=True)
        self._pending = "".join(line for line in pending if json.loads(line)["step"] <= step)
        rows = [row for row in read_rows(self._lines, self._files.warn) if row["step"] <= step]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        with self._files.writing(self._lines.name):
            write_text(self._lines, text)
        self.results = [row for row in rows if "rate" not in row]  # rows of training steps have one
        self.trained_to = max((int(row["step"]) for row in rows if "rate" in row), default=0)
        self._write_table()

    def _write_table(self) -> None:
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in self.results for name in row))
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(self.results)
        with self._files.writing(self._table.name):
            if self.results:
                write_text(self._table, text.getvalue())
            else:
                self._table.unlink(missing_ok=True)


def read_rows(path: Path, warn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Read the rows of a metrics file, without a last line that was cut off. Damaged lines are left out, and
    `warn` is called if there are any.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    rows = [_row(line) for line in lines if line.endswith("\n")]
    if (num := rows.count(None)) and warn is not None:
        warn(f"{path}: {counted(num, 'damaged line')}, left out")
    return [row for row in rows if row is not None]


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "step" in row else None
