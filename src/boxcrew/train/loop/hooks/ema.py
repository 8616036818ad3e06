"""A moving average of the weights: smoother, and usually better, than the last step's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from boxcrew.core.torch_tools.foreach import lerp_all
from boxcrew.tasks.base import Task
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer


class Ema(Hook):
    """Keeps an average of every tensor of the task. With decay 0 there is none."""

    name = "ema"

    def __init__(self, task: Task, *, decay: float) -> None:
        self._decay = decay
        self._updates = 0
        state = task.state_dict() if decay else {}
        self._averages = {name: value.detach().clone() for name, value in state.items()}

    def eval_copy(self, trainer: Trainer) -> Task:
        """Return the task to evaluate and store, with the averages as its parameters."""
        return trainer.eval_copy(self.name if self._decay else "task")

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        if not self._decay or report.fault:
            return
        self._updates += 1
        # A lower decay at first, or the random start would stay in the average for a thousand steps.
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        pairs = self._pairs(trainer)
        floats = [(average, value) for average, value in pairs if average.is_floating_point()]
        lerp_all([average for average, _ in floats], [value for _, value in floats], 1 - decay)
        for average, value in pairs:
            if not average.is_floating_point():
                average.copy_(value)

    def state(self) -> dict[str, Any]:
        return {"updates": self._updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._updates = int(state.get("updates", 0))

    def tensors(self) -> dict[str, Tensor]:
        return self._averages

    def load_tensors(self, trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
        """Load the averages. Without any (the run kept none so far) they begin at the trained weights."""
        for name, value in tensors.items() if self._decay else ():
            trainer.deployment.load_into(self._averages[name], value)
        for average, value in self._pairs(trainer) if not tensors else ():
            average.copy_(value)

    def _pairs(self, trainer: Trainer) -> list[tuple[Tensor, Tensor]]:
        """Return the local shard of each average with that of the trained tensor."""
        local, trained = trainer.deployment.to_local, trainer.task.state_dict()
        return [(local(average), local(trained[name])) for name, average in self._averages.items()]
