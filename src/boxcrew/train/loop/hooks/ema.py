"""A moving average of the weights: smoother, and usually better, than the last step's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from boxcrew.core.torch_tools.foreach import lerp_all
from boxcrew.tasks.base import Task
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer


class Ema(Hook):
    """Keeps tensors that follow the trained task's. With decay 0 there are none: the trained ones count."""

    name = "ema"

    def __init__(self, task: Task, *, decay: float) -> None:
        self._decay = decay
        self._updates = 0
        state = task.state_dict() if decay else {}
        self._averages = {name: value.detach().clone() for name, value in state.items()}

    def learnt(self, trainer: Trainer) -> Task:
        """The task as it is to be judged and stored."""
        return trainer.learnt(self.name if self._decay else "task")

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        if not self._decay or report.fault:
            return
        self._updates += 1
        # Short memory at first, or the random start would stay in the average for a thousand steps.
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        pairs = self._pairs(trainer)
        floats = [(own, new) for own, new in pairs if own.is_floating_point()]
        lerp_all([own for own, _ in floats], [new for _, new in floats], 1 - decay)
        for own, new in pairs:
            if not own.is_floating_point():
                own.copy_(new)

    def state(self) -> dict[str, Any]:
        return {"updates": self._updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._updates = int(state.get("updates", 0))

    def tensors(self) -> dict[str, Tensor]:
        return self._averages

    def load_tensors(self, trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
        """From no tensors, of a run that kept no average so far, it begins at the trained weights."""
        for name, value in tensors.items() if self._decay else ():
            trainer.deployment.load_into(self._averages[name], value)
        for own, new in self._pairs(trainer) if not tensors else ():
            own.copy_(new)

    def _pairs(self, trainer: Trainer) -> list[tuple[Tensor, Tensor]]:
        """What this process has of the averages, and of the trained tensors."""
        local, trained = trainer.deployment.to_local, trainer.task.state_dict()
        return [(local(own), local(trained[name])) for name, own in self._averages.items()]
