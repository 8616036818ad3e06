"""The numbers of a run as they come: `metrics.jsonl`, `results.csv` and TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxcrew.core.files import append, flush, write_text
from boxcrew.train.loop.schedule import Progress
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.tensorboard import TensorBoardLog

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Row = dict[str, float]


class Metrics:
    """A line of `metrics.jsonl` for each set of numbers; for an evaluation also one of `results.csv`.

    A run that goes on from a checkpoint forgets what came after it, so that no line is there twice. Lines
    that a full disk does not take are tried again with the next.
    """

    def __init__(self, folder: Path, *, board: TensorBoardLog, files: BestEffort, from_step: int) -> None:
        self._board = board
        self._files = files
        self._lines = folder / "metrics.jsonl"
        self._table = folder / "results.csv"
        self._waiting = ""  # lines that are not in the file yet
        self.results: list[Row] = []
        self._keep_until(from_step)

    def forget_after(self, step: int) -> None:
        self._keep_until(step)
        self._board.forget_after(step)

    def add(self, progress: Progress, seconds: float, numbers: Mapping[str, float]) -> Row:
        """`seconds` of training so far. A number that is not finite is left out: JSON has no word for it."""
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        row = {"step": progress.step, "epoch": round(progress.epoch, 4), "time": round(seconds, 3), **finite}
        self._waiting += json.dumps(row) + "\n"
        self.flush()
        for name, value in numbers.items():
            self._board.show(partial(_add_scalar, name=name, value=value, step=progress.step))
        return row

    def flush(self) -> None:
        """Tries again to write the lines that wait."""
        if self._waiting and self._files.write(self._lines.name, partial(append, self._lines, self._waiting)):
            self._waiting = ""

    def sync(self) -> None:
        """Waits until the lines are on the disk. May be called beside the loop."""
        if self._lines.is_file():
            flush(self._lines)
        self._board.sync()

    def add_result(self, progress: Progress, seconds: float, numbers: Mapping[str, float]) -> None:
        self.results.append(self.add(progress, seconds, numbers))
        self._write_table()

    def _keep_until(self, step: int) -> None:
        self.flush()
        waiting = self._waiting.splitlines(keepends=True)
        self._waiting = "".join(line for line in waiting if json.loads(line)["step"] <= step)
        rows = [row for row in read_rows(self._lines) if row["step"] <= step]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self._files.write(self._lines.name, partial(write_text, self._lines, text))
        self.results = [row for row in rows if "rate" not in row]  # lines of steps have one
        self._write_table()

    def _write_table(self) -> None:
        self._files.write(self._table.name, self._try_to_write_table)

    def _try_to_write_table(self) -> None:
        if not self.results:
            self._table.unlink(missing_ok=True)
            return
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in self.results for name in row))
        table = csv.DictWriter(text, names, lineterminator="\n")
        table.writeheader()
        table.writerows(self.results)
        write_text(self._table, text.getvalue())


def _add_scalar(writer: SummaryWriter, *, name: str, value: float, step: int) -> None:
    writer.add_scalar(name, value, step)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a last line that a kill cut short is not one."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
