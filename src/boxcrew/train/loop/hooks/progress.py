"""Progress reports: a bar on a terminal, lines elsewhere, and `status.json` for programs."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from boxcrew.core.files import write_json
from boxcrew.core.units import format_duration
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.screen import Screen

LINE_SECONDS = 15.0  # between lines where there is no terminal
STATUS_SECONDS = 5.0
RECENT = 20  # steps that a line averages


@dataclass(frozen=True, eq=False)
class SkippedReport(Hook):
    """Warns of every sample that could not be read."""

    name = "skipped"

    screen: Screen

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        for problem in report.skipped:
            self.screen.warn(f"step {trainer.step}: skipped: {problem}")


class ProgressReport(Hook):
    """Shows how far the run is, how fast it is, and when it will end."""

    name = "progress"

    def __init__(self, folder: Path, screen: Screen, files: BestEffort) -> None:
        self._status = folder / "status.json"
        self._files = files
        self._screen = screen
        self._bar: Bar | None = None
        self._line_at = self._status_at = time.monotonic()
        self._begun = (0, 0.0)  # step and seconds of training at which this process began
        self._recent = deque[StepReport](maxlen=RECENT)
        self._trainer: Trainer | None = None  # between `begin` and `end`

    def begin(self, trainer: Trainer) -> None:
        self._begun = (trainer.step, trainer.elapsed)
        self._trainer = trainer
        if self._screen.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
            self._bar = Bar(*columns, console=self._screen.console, transient=True)
            self._bar.add_task("training", total=1.0)
            self._bar.start()
        self._write_status(trainer, "running")

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        if report.fault is None:
            self._recent.append(report)
        now = time.monotonic()
        if self._bar is not None:
            done, line = trainer.progress.fraction, self._line(trainer)
            self._bar.update(self._bar.task_ids[0], completed=done, description=line)
        elif now - self._line_at > LINE_SECONDS or trainer.progress.fraction >= 1:
            self._line_at = now
            self._screen.info(self._line(trainer))
        if now - self._status_at > STATUS_SECONDS:
            self._status_at = now
            self._write_status(trainer, "running")

    def end(self, trainer: Trainer) -> None:
        self._trainer = None
        self.close()
        self._write_status(trainer, "interrupted" if trainer.interrupted else "finished")

    def close(self) -> None:
        """Remove the bar. A run that is closed before its end has failed."""
        if self._trainer is not None:
            self._write_status(self._trainer, "failed")
            self._trainer = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _line(self, trainer: Trainer) -> str:
        recent = self._recent
        position = f"epoch {trainer.progress.epoch:.1f} step {trainer.step}"
        if not recent:
            return f"{position}: no step has succeeded yet"
        count, seconds = len(recent), sum(r.seconds for r in recent)
        values: dict[str, list[float]] = {}  # not all steps have every phase
        for name, value in (term for r in recent for term in r.terms.items()):
            values.setdefault(name, []).append(value)
        terms = " ".join(f"{name} {statistics.fmean(of_term):.2f}" for name, of_term in values.items())
        speed = sum(r.num_samples for r in recent) / seconds
        wait = sum(r.data_wait for r in recent) / seconds
        loss = f"loss {sum(r.loss for r in recent) / count:.2f} ({terms})"
        return f"{position} {loss} {speed:.1f} samples/s wait {wait:.0%} ETA {self._eta(trainer)}"

    def _eta(self, trainer: Trainer) -> str:
        """Return the remaining time, from the speed since this process began."""
        begun = trainer.schedule.limits.progress(*self._begun).fraction
        done = trainer.progress.fraction - begun
        if done <= 0:
            return "?"
        return format_duration((trainer.elapsed - self._begun[1]) * (1 - trainer.progress.fraction) / done)

    def _write_status(self, trainer: Trainer, state: str) -> None:
        status = {
            "state": state,
            **asdict(trainer.progress),
            "train_seconds": trainer.elapsed,
            "reason": trainer.stop_reason,
            "pid": os.getpid(),
            "processes": trainer.deployment.group.processes(),
        }
        with self._files.writing(self._status.name):
            write_json(self._status, status)
