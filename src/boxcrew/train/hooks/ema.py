"""A moving average of the weights: smoother, and usually better, than the last step's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from boxcrew.tasks.base import Task
from boxcrew.train.trainer import Hook, StepReport, Trainer


class Ema(Hook):
    """Keeps a second task whose numbers follow the trained one's. With decay 0 it is the trained one."""

    name = "ema"

    def __init__(self, task: Task, *, decay: float) -> None:
        self._decay = decay
        self._updates = 0
        self._trained = task
        self.task: Task = copy.deepcopy(task).requires_grad_(requires_grad=False) if decay else task

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        if not self._decay or report.fault:
            return
        self._updates += 1
        # Short memory at first, or the random start would stay in the average for a thousand steps.
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        ours, theirs = self.task.state_dict(), trainer.task.state_dict()
        floats = [name for name, value in ours.items() if value.is_floating_point()]
        torch._foreach_lerp_([ours[n] for n in floats], [theirs[n] for n in floats], 1 - decay)
        for name in ours.keys() - set(floats):
            ours[name].copy_(theirs[name])

    def state(self) -> dict[str, Any]:
        return {"updates": self._updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._updates = int(state.get("updates", 0))

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.task.state_dict()) if self._decay else {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """From no tensors, of a run that kept no average so far, it begins at the trained weights."""
        if self._decay:
            self.task.load_state_dict(dict(tensors) or self._trained.state_dict())
