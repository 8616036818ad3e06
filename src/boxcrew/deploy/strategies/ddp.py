"""One process for each clone: every replica has all parameters, computes its share, makes the same update."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce

from torch import nn

from boxcrew.core.types import Losses
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.group import Group
from boxcrew.deploy.one_clone import OneClone, Piece, num_samples
from boxcrew.deploy.reduction import Reduction
from boxcrew.plan.plan import Plan


@STRATEGIES.register("ddp")
class Ddp(OneClone):
    def __init__(self, plan: Plan, devices: Devices, group: Group) -> None:
        super().__init__(plan, devices, group)
        self.reduction: Reduction | None = None
        self._learning: list[nn.Parameter] = []

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        undo.callback(self._forget_reduction)

    def compute_all(self, task: nn.Module, pieces: Sequence[Piece], phase: str) -> Losses:
        reduction = self._reduction_of(task)
        *first, last = pieces
        done = [self.compute_piece(task, piece, phase) for piece in first]
        # Messages of BatchNorms and of gradients must leave in one order on all replicas, and where some
        # parameters are used by few of them only those of BatchNorms surely do.
        if not self.synced:
            reduction.begin()
        done.append(self.compute_piece(task, last, phase))
        reduction.send_rest()
        total, used = self.add_sums(reduce(operator.add, done), num_samples(pieces), reduction.used())
        reduction.finish()
        reduction.leave_out(used)
        return total

    def discard(self, task: nn.Module) -> None:
        if self.reduction is not None:
            self.reduction.abandon()
        super().discard(task)

    def _reduction_of(self, task: nn.Module) -> Reduction:
        learning = [parameter for parameter in task.parameters() if parameter.requires_grad]
        if self.reduction is None or [*map(id, learning)] != [*map(id, self._learning)]:
            self._forget_reduction()
            self._learning = learning
            self.reduction = Reduction(learning, self.group)
        return self.reduction

    def _forget_reduction(self) -> None:
        if self.reduction is not None:
            self.reduction.close()
            self.reduction = None
