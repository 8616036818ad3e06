"""The numbers of a run as they come: `metrics.jsonl`, `results.csv` and TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxcrew.core.files import write_text
from boxcrew.train.schedule import Progress

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Row = dict[str, float]


class Metrics:
    """A line of `metrics.jsonl` for each set of numbers; for an evaluation also one of `results.csv`.

    A run that goes on from a checkpoint forgets what came after it, so that no line is there twice.
    """

    def __init__(self, folder: Path, *, writer: SummaryWriter | None, from_step: int) -> None:
        self.writer = writer
        self._lines = folder / "metrics.jsonl"
        self._table = folder / "results.csv"
        rows = [row for row in read_rows(self._lines) if row["step"] <= from_step]
        write_text(self._lines, "".join(json.dumps(row) + "\n" for row in rows))
        self.results = [row for row in rows if "AP" in row]
        self._write_table()

    def add(self, progress: Progress, seconds: float, numbers: Mapping[str, float]) -> Row:
        """`seconds` of training so far. A number that is not finite is left out: JSON has no word for it."""
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        row = {"step": progress.step, "epoch": round(progress.epoch, 4), "time": round(seconds, 3), **finite}
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self.writer is not None:
            for name, value in numbers.items():
                self.writer.add_scalar(name, value, progress.step)
        return row

    def add_result(self, progress: Progress, seconds: float, numbers: Mapping[str, float]) -> None:
        self.results.append(self.add(progress, seconds, numbers))
        self._write_table()

    def _write_table(self) -> None:
        if not self.results:
            self._table.unlink(missing_ok=True)
            return
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in self.results for name in row))
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(self.results)
        write_text(self._table, text.getvalue())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a last line that a kill cut short is not one."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def open_writer(folder: Path, *, from_step: int) -> SummaryWriter:
    """A TensorBoard writer that hides what an earlier process wrote after `from_step`, be it 0."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=from_step + 1)
