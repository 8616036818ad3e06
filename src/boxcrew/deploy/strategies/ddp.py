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
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._gradient_buckets import Reduction
from boxcrew.deploy.strategies._one_clone import OneClone, Piece, num_samples
from boxcrew.plan.plan import Plan


@STRATEGIES.register("ddp")
class Ddp(OneClone):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.reductions: dict[str, Reduction] = {}  # of each phase
        self._learning: dict[str, list[nn.Parameter]] = {}  # what they are for

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        undo.callback(self._forget_reductions)

    def compute_all(self, task: nn.Module, pieces: Sequence[Piece], phase: str) -> Losses:
        reduction = self._reduction_of(task, phase)
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
        for reduction in self.reductions.values():
            reduction.abandon()
        super().discard(task)

    def _reduction_of(self, task: nn.Module, phase: str) -> Reduction:
        """Made anew where other parameters learn in the phase than before: layers have thawed."""
        learning = [parameter for parameter in task.parameters() if parameter.requires_grad]
        known = self.reductions.get(phase)
        if known is None or [*map(id, learning)] != [*map(id, self._learning[phase])]:
            if known is not None:
                known.close()
            self._learning[phase] = learning
            self.reductions[phase] = Reduction(learning, self.group)
        return self.reductions[phase]

    def _forget_reductions(self) -> None:
        for reduction in self.reductions.values():
            reduction.close()
        self.reductions.clear()
        self._learning.clear()
