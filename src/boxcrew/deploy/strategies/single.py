"""One clone on one device, which also keeps the parameters."""

from __future__ import annotations

import operator
from functools import reduce

from torch import nn

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.deploy.local import Local


@STRATEGIES.register("single")
class Single(Local):
    def add_up(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        parts = batch.split(self.plan.micro_batches(len(batch)))
        return reduce(operator.add, (self.compute(task, part, phase, self.device) for part in parts))
