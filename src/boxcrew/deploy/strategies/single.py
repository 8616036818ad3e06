"""One clone on one device, which also keeps the parameters."""

from __future__ import annotations

import operator
from functools import reduce

from torch import nn

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES, Deployment


@STRATEGIES.register("single")
class Single(Deployment):
    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        sizes = self.execution.plan.micro_batches(len(batch))
        if len(sizes) == 1:  # its weight is known before backward: one number to divide, not all gradients
            losses = self.forward(task, batch, phase, self.device)
            self.backward(losses.total() / losses.divisor)
            return losses.detach()
        parts = (self.compute(task, samples, phase, self.device) for samples in batch.split(sizes))
        total = reduce(operator.add, parts)
        super().divide(task, total)
        return total

    def divide(self, task: nn.Module, total: Losses) -> None:
        """Do nothing: `forward_backward` has divided already."""
