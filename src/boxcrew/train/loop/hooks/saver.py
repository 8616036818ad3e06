"""Checkpoints at their times, written beside the loop."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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

SHARE = 0.02  # of the run's time that saving may take where no interval is set


@dataclass(frozen=True, kw_only=True)
class _Written:
    """How a write went."""

    cpu_seconds: float
    trouble: str | None


class Saver(Hook):
    """Copies the state in the loop's thread and writes it in another, one at a time. Last of the hooks, so
    that all of them have done their part of the step that is saved.

    A checkpoint is *planned* if it is there because its time came, not because the run was stopped. Those
    are what the guard goes back to, so the last of them are kept as well: they are the same however often a
    run was stopped.

    `sync` is called before each write, in the thread that writes: who goes on from a checkpoint must find on
    the disk what the run had written until then.
    """

    name = "saver"

    def __init__(
        self,
        folder: Path,
        config: SaverConfig,
        *,
        warn: Callable[[str], None],
        best_step: Callable[[], int | None] = lambda: None,
        sync: Callable[[], None] = lambda: None,
    ) -> None:
        self.trouble: str | None = None  # why the newest checkpoint could not be written
        self.loop_seconds = 0.0  # that the loop has waited for its savings
        self.cpu_seconds = 0.0  # that the other thread has worked
        self._folder = folder
        self._config = config
        self._warn = warn
        self._best_step = best_step
        self._sync = sync
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saver")
        self._writing: Future[_Written] | None = None
        self._saved_at = time.monotonic()
        self._cost = 0.0  # seconds that the last one took of both threads
        self._saved_step = -1
        self._is_planned = True  # the last one
        self._planned_steps: tuple[int, ...] = (0,)  # of the planned ones that are kept, the last at the end
        self._planned_epoch = 0.0  # of the last planned one
        self._for_good: tuple[int, ...] = ()  # steps kept by `keep_every_hours`
        self._for_good_hours = 0.0

    def begin(self, trainer: Trainer) -> None:
        """The first checkpoint is that of the start: there is always one to go back to."""
        self._saved_at = time.monotonic()
        if not list_checkpoints(self._folder):
            self._save(trainer, planned=True)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        if self._writing is not None and self._writing.done():
            self._settle()
        if report.fault is None and self._is_due(trainer):
            self._save(trainer, planned=True)

    def went_back(self, trainer: Trainer) -> None:
        remove_newer(self._folder, than=trainer.step)

    def end(self, trainer: Trainer) -> None:
        self._settle()
        if trainer.step != self._saved_step or self.trouble:
            self._save(trainer, planned=False)
            self._settle()

    def close(self) -> None:
        """Waits for what is being written."""
        self._settle()
        self._thread.shutdown()

    def last_good(self, before: int | None = None) -> Checkpoint | None:
        """The newest whole one that was planned, of a step below `before` if that is given."""
        self._settle()
        for place in reversed(list_checkpoints(self._folder)):
            if before is not None and int(place.name) >= before:
                continue
            try:
                found = read_checkpoint(place)
            except ModelError as error:
                self._warn(error.message)
                continue
            if found.state["hooks"][self.name].get("planned", True):
                return found
        return None

    def state(self) -> dict[str, Any]:
        return {
            "step": self._saved_step,
            "planned": self._is_planned,
            "planned_steps": list(self._planned_steps),
            "planned_epoch": self._planned_epoch,
            "for_good": list(self._for_good),
            "for_good_hours": self._for_good_hours,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._saved_step = state["step"]
        self._is_planned = state.get("planned", True)
        self._planned_steps = tuple(state.get("planned_steps", (state.get("planned_step", state["step"]),)))
        self._planned_epoch = state.get("planned_epoch", state.get("epoch", 0.0))
        self._for_good = tuple(state.get("for_good", ()))
        self._for_good_hours = state.get("for_good_hours", 0.0)

    def _is_due(self, trainer: Trainer) -> bool:
        config = self._config
        if config.keep_best and self._best_step() == trainer.step:
            return True
        steps, epochs, seconds = config.every_steps, config.every_epochs, config.every_seconds
        since = time.monotonic() - self._saved_at
        if steps is None and epochs is None and seconds is None:
            return self._passed_epoch(trainer, 1.0) and self._writing is None and since * SHARE >= self._cost
        return (
            (steps is not None and trainer.step // steps > self._planned_steps[-1] // steps)
            or (epochs is not None and self._passed_epoch(trainer, epochs))
            or (seconds is not None and since >= seconds)
        )

    def _passed_epoch(self, trainer: Trainer, every: float) -> bool:
        return math.floor(trainer.progress.epoch / every) > math.floor(self._planned_epoch / every)

    def _save(self, trainer: Trainer, *, planned: bool) -> None:
        begun = time.monotonic()
        self._settle()
        self._saved_step, self._is_planned = trainer.step, planned
        if planned:
            self._planned_steps = (*self._planned_steps, trainer.step)[-self._config.keep :]
            self._planned_epoch = trainer.progress.epoch
            self._keep_for_good(trainer)
        # One that comes to its end has no need of more than the last.
        is_last = not planned and not trainer.interrupted
        spare = {*self._planned_steps[-1 if is_last else 0 :], *self._for_good}
        best = self._best_step()
        if self._config.keep_best and best is not None:
            spare.add(best)
        self._writing = self._thread.submit(self._write, trainer.checkpoint(), spare)
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - begun
        self.loop_seconds += self._cost

    def _keep_for_good(self, trainer: Trainer) -> None:
        """By hours of training, which no clock on the wall can turn back."""
        every, hours = self._config.keep_every_hours, trainer.elapsed / 3600
        if every is not None and math.floor(hours / every) > math.floor(self._for_good_hours / every):
            self._for_good, self._for_good_hours = (*self._for_good, trainer.step), hours

    def _write(self, checkpoint: Checkpoint, spare: set[int]) -> _Written:
        """In the other thread."""
        begun = time.thread_time()
        trouble = None
        try:
            self._sync()
            write_checkpoint(self._folder, checkpoint)
            remove_old(self._folder, last=checkpoint.step, keep=self._config.keep, spare=spare)
        except OSError as error:
            trouble = self._describe(checkpoint, error)
        return _Written(cpu_seconds=time.thread_time() - begun, trouble=trouble)

    def _describe(self, checkpoint: Checkpoint, error: OSError) -> str:
        text = f"{self._folder}: the checkpoint of step {checkpoint.step} could not be written: "
        text += f"{error.strerror or error}; it needs {format_bytes(checkpoint.num_bytes())}"
        place = next((p for p in (self._folder, *self._folder.parents) if p.is_dir()), None)
        if place is not None:
            text += f", free are {format_bytes(shutil.disk_usage(place).free)}"
        return text

    def _settle(self) -> None:
        """Waits for the write at hand, if any, and says how it went where that is news."""
        if self._writing is None:
            return
        written = self._writing.result()
        self._writing = None
        self._cost += written.cpu_seconds
        self.cpu_seconds += written.cpu_seconds
        before, self.trouble = self.trouble, written.trouble
        if written.trouble and not before:
            self._warn(f"{written.trouble}; the run goes on, and the checkpoints before it stay")
        elif before and not written.trouble:
            self._warn(f"{self._folder}: checkpoints are written again")
