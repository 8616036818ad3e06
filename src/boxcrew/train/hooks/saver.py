"""Checkpoints at their times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boxcrew.train.checkpoint import remove_old, write_checkpoint
from boxcrew.train.config import SaverConfig
from boxcrew.train.trainer import Hook, StepReport, Trainer


class Saver(Hook):
    """Saves every so many steps or epochs and at the end. Last of the hooks, so that all of them have done
    their part of the step that is saved.
    """

    name = "saver"

    def __init__(self, folder: Path, config: SaverConfig) -> None:
        self._folder = folder
        self._config = config
        self._saved_epoch = 0.0
        self._saved_step = 0

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        every = self._config.every_epochs
        passed = math.floor(report.progress.epoch / every) > math.floor(self._saved_epoch / every)
        steps = self._config.every_steps
        if passed or (steps and trainer.step - self._saved_step >= steps):
            self._save(trainer)

    def end(self, trainer: Trainer) -> None:
        if trainer.step != self._saved_step:
            self._save(trainer)

    def state(self) -> dict[str, Any]:
        return {"epoch": self._saved_epoch, "step": self._saved_step}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._saved_epoch, self._saved_step = state["epoch"], state["step"]

    def _save(self, trainer: Trainer) -> None:
        self._saved_epoch, self._saved_step = trainer.progress.epoch, trainer.step
        write_checkpoint(self._folder, trainer.checkpoint())
        remove_old(self._folder, last=trainer.step, keep=self._config.keep)
