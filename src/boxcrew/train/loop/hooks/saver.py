"""Checkpoints, written when due in a thread beside the loop."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from boxcrew.core.errors import ModelError
from boxcrew.core.units import format_bytes
from boxcrew.train.config import SaverConfig
from boxcrew.train.loop.checkpoint import (
    Checkpoint,
    list_checkpoints,
    read_checkpoint,
    remove_newer,
    remove_old,
    write_checkpoint,
)
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer

TIME_FRACTION = 0.02  # of the run that saving may take where no interval is set


@dataclass(frozen=True, kw_only=True)
class _SaverState:
    step: int = -1  # of the last checkpoint
    planned: bool = True  # the last checkpoint
    planned_steps: Sequence[int] = (0,)  # of the planned ones that are kept, in order
    planned_epoch: float = 0.0  # of the last planned one
    for_good: Sequence[int] = ()  # steps kept by `keep_every_hours`
    for_good_hours: float = 0.0  # of training at the last of these


@dataclass(eq=False, repr=False)
class Saver(Hook):
    """Copies the state in the loop's thread and writes it in another, one checkpoint at a time. It runs after
    the hooks whose state it saves.

    A checkpoint is *planned* if it was due, not made because the run was stopped. The guard rolls back to
    planned ones, which are the same however often a run was stopped; so the last of them are kept as well.

    `sync` is called before each write, in the writing thread: a run resumed from a checkpoint must find on
    disk what was written before it.
    """

    name = "saver"

    folder: Path
    config: SaverConfig
    _: KW_ONLY
    warn: Callable[[str], None]
    best_step: Callable[[], int | None] = lambda: None
    sync: Callable[[], None] = lambda: None
    run: Mapping[str, Any] = field(default_factory=dict)  # what the run was made with, for each checkpoint

    def __post_init__(self) -> None:
        self.trouble: str | None = None  # why the newest checkpoint could not be written
        self.loop_seconds = 0.0  # that the loop has spent on saving
        self.cpu_seconds = 0.0  # that the writing thread has spent
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saver")
        self._writing: Future[tuple[float, str | None]] | None = None
        self._saved_at = time.monotonic()
        self._cost = 0.0  # seconds of both threads for the last checkpoint
        self._state = _SaverState()

    def begin(self, trainer: Trainer) -> None:
        """Save the start of a run, so that there is always a checkpoint to roll back to."""
        self._saved_at = time.monotonic()
        if not list_checkpoints(self.folder):
            self._save(trainer, planned=True)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        if self._writing is not None and self._writing.done():
            self._finish_writing()
        if report.fault is None and self._is_due(trainer):
            self._save(trainer, planned=True)

    def after_rollback(self, trainer: Trainer) -> None:
        remove_newer(self.folder, than=trainer.step)

    def end(self, trainer: Trainer) -> None:
        self._finish_writing()
        if trainer.step != self._state.step or self.trouble:
            self._save(trainer, planned=False)
            self._finish_writing()

    def close(self) -> None:
        """Wait for the last write and end the thread."""
        self._finish_writing()
        self._thread.shutdown()

    def last_good(self, before: int | None = None) -> Checkpoint | None:
        """Return the newest undamaged planned checkpoint, of a step below `before` if that is given."""
        self._finish_writing()
        for path in reversed(list_checkpoints(self.folder)):
            if before is not None and int(path.name) >= before:
                continue
            try:
                checkpoint = read_checkpoint(path)
            except ModelError as error:
                self.warn(error.message)
                continue
            if checkpoint.hook_state(self.name)["planned"]:
                return checkpoint
        return None

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._state = _SaverState(**state)

    def _is_due(self, trainer: Trainer) -> bool:
        config = self.config
        if config.keep_best and self.best_step() == trainer.step:
            return True
        steps, epochs, seconds = config.every_steps, config.every_epochs, config.every_seconds
        since = time.monotonic() - self._saved_at
        if steps is None and epochs is None and seconds is None:
            is_affordable = self._writing is None and since * TIME_FRACTION >= self._cost
            return is_affordable and self._passed_epoch(trainer, 1.0)
        return (
            (steps is not None and trainer.step // steps > self._state.planned_steps[-1] // steps)
            or (epochs is not None and self._passed_epoch(trainer, epochs))
            or (seconds is not None and since >= seconds)
        )

    def _passed_epoch(self, trainer: Trainer, every: float) -> bool:
        return math.floor(trainer.progress.epoch / every) > math.floor(self._state.planned_epoch / every)

    def _save(self, trainer: Trainer, *, planned: bool) -> None:
        start = time.monotonic()
        self._finish_writing()
        self._state = replace(self._state, step=trainer.step, planned=planned)
        if planned:
            steps = (*self._state.planned_steps, trainer.step)[-self.config.keep :]
            self._state = replace(self._state, planned_steps=steps, planned_epoch=trainer.progress.epoch)
            every, hours = self.config.keep_every_hours, trainer.elapsed / 3600  # clocks may be set back
            if every and math.floor(hours / every) > math.floor(self._state.for_good_hours / every):
                steps = (*self._state.for_good, trainer.step)
                self._state = replace(self._state, for_good=steps, for_good_hours=hours)
        # A run that has ended needs only the last planned one.
        is_last = not planned and not trainer.interrupted
        spare = {*self._state.planned_steps[-1 if is_last else 0 :], *self._state.for_good}
        best = self.best_step()
        if self.config.keep_best and best is not None:
            spare.add(best)
        self._writing = self._thread.submit(self._write, replace(trainer.checkpoint(), run=self.run), spare)
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - start
        self.loop_seconds += self._cost

    def _write(self, checkpoint: Checkpoint, spare: set[int]) -> tuple[float, str | None]:
        """Write a checkpoint and remove old ones, in the writing thread; return CPU seconds and trouble."""
        start, trouble = time.thread_time(), None
        try:
            self.sync()
            write_checkpoint(self.folder, checkpoint)
            remove_old(self.folder, last=checkpoint.step, keep=self.config.keep, spare=spare)
        except OSError as error:
            trouble = f"{self.folder}: the checkpoint of step {checkpoint.step} could not be written: "
            trouble += f"{error.strerror or error}; it needs {format_bytes(checkpoint.num_bytes())}"
            existing = next((p for p in (self.folder, *self.folder.parents) if p.is_dir()), None)
            if existing is not None:
                trouble += f", and {format_bytes(shutil.disk_usage(existing).free)} are free"
        return time.thread_time() - start, trouble

    def _finish_writing(self) -> None:
        """Wait for the current write, if any, and warn if its outcome differs from the last one's."""
        if self._writing is None:
            return
        before = self.trouble
        seconds, self.trouble = self._writing.result()
        self._writing = None
        self._cost += seconds
        self.cpu_seconds += seconds
        if self.trouble and not before:
            self.warn(f"{self.trouble}; the run continues, and earlier checkpoints stay")
        elif before and not self.trouble:
            self.warn(f"{self.folder}: checkpoints are written again")
