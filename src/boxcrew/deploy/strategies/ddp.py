"""One process for each clone: every replica has all parameters, computes its share, makes the same update."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from torch import nn

from boxcrew.core.types import Losses
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.deploy.strategies._gradient_buckets import GradientReducer
from boxcrew.deploy.strategies._one_clone import MicroBatch, OneClone


@STRATEGIES.register("ddp")
class Ddp(OneClone):
    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        self.reducers: dict[str, GradientReducer] = {}  # by phase
        undo.callback(self._close_reducers)

    def compute_all(self, task: nn.Module, micro_batches: Sequence[MicroBatch], phase: str) -> Losses:
        reducer = self._reducer_of(task, phase)
        *first, last = micro_batches
        losses = [self.compute_one(task, micro_batch, phase) for micro_batch in first]
        # Messages of BatchNorms and of gradients must leave in one order on all replicas, and where some
        # parameters are used by few of them only those of BatchNorms surely do.
        if not self.synced:
            reducer.begin()
        losses.append(self.compute_one(task, last, phase))
        reducer.send_rest()
        total, used = self.all_reduce_step(losses, micro_batches, reducer.used())
        reducer.finish()
        reducer.clear_unused(used)
        return total

    def discard(self, task: nn.Module) -> None:
        for reducer in self.reducers.values():
            reducer.abandon()
        super().discard(task)

    def _reducer_of(self, task: nn.Module, phase: str) -> GradientReducer:
        """Return the phase's reducer, a new one if other parameters learn than before: layers have thawed."""
        learning = [parameter for parameter in task.parameters() if parameter.requires_grad]
        reducer = self.reducers.get(phase)
        if reducer is None or [*map(id, learning)] != [*map(id, reducer.parameters)]:
            if reducer is not None:
                reducer.close()
            reducer = self.reducers[phase] = GradientReducer(learning, self.group)
        return reducer

    def _close_reducers(self) -> None:
        for reducer in self.reducers.values():
            reducer.close()
        self.reducers.clear()
