"""One process for each clone: every replica has all parameters, computes its share, makes the same update."""

from __future__ import annotations

import itertools
import operator
from contextlib import ExitStack, nullcontext
from functools import reduce

import torch
from torch import Tensor, nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.group import Group
from boxcrew.deploy.local import Local
from boxcrew.deploy.memory import is_out_of_memory
from boxcrew.deploy.norms import SyncedNorms
from boxcrew.deploy.reduction import Reduction
from boxcrew.plan.plan import Plan


@STRATEGIES.register("ddp")
class Ddp(Local):
    def __init__(self, plan: Plan, devices: Devices, group: Group) -> None:
        super().__init__(plan, devices, group)
        self.device = devices.find(plan.replicas[group.rank].clones[0].device)
        self.reduction: Reduction | None = None
        self._learning: list[nn.Parameter] = []

    def place(self, module: nn.Module) -> nn.Module:
        placed = super().place(module)
        with torch.no_grad():
            self.group.spread([*placed.parameters(), *placed.buffers()])
        return placed

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        undo.callback(self._forget_reduction)

    def _forget_reduction(self) -> None:
        if self.reduction is not None:
            self.reduction.close()
            self.reduction = None

    def add_up(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        reduction = self._reduction_of(task)
        *pieces, last = batch.split(self._sizes(len(batch)))  # at least one: every replica has some share
        done = [self._compute(task, piece, phase) for piece in pieces]
        # Messages of BatchNorms and of gradients must leave in one order on all replicas, and where some
        # parameters are used by few of them only those of BatchNorms surely do.
        if not self._synced:
            reduction.begin()
        done.append(self._compute(task, last, phase))
        return self._join(reduce(operator.add, done), reduction)

    def _compute(self, task: nn.Module, piece: Batch, phase: str) -> Losses:
        with SyncedNorms(self._sum) if self._synced else nullcontext():
            return self.compute(task, piece, phase, self.device)

    def discard(self, task: nn.Module) -> None:
        if self.reduction is not None:
            self.reduction.abandon()
        super().discard(task)

    def take_smaller_parts(self, num_samples: int, error: RuntimeError | ValueError | MemoryError) -> None:
        """Not with others, who would have to take them too, and may be waiting for our gradients already."""
        if self.group.size == 1 or not is_out_of_memory(error):
            super().take_smaller_parts(num_samples, error)
            return
        parts = self.plan.accumulation
        raise BoxcrewError(
            f"replica {self.group.rank} has not enough memory on {self.device} for a step in {parts} parts: "
            f"{str(error).partition(chr(10))[0]}",
            advice=f"deploy.accumulation={min(2 * parts, self.plan.batch)} computes the same in less memory",
        ) from error

    @property
    def _synced(self) -> bool:
        return self.plan.batch_norm == "synced" and self.group.size > 1

    def _sum(self, value: Tensor) -> Tensor:
        total = value.clone()
        self.group.add(total)
        return total

    def _sizes(self, num_samples: int) -> list[int]:
        """Of the parts of this replica's samples; fewer than planned where some could not be read."""
        planned = [len(piece) for piece in self.plan.pieces(self.group.rank)]
        ends = [min(end, num_samples) for end in itertools.accumulate(planned, initial=0)]
        sizes = [after - before for before, after in itertools.pairwise(ends)]
        if self._synced and not all(sizes):
            raise BoxcrewError(
                f"replica {self.group.rank} has no sample for a part of this step, and "
                "deploy.batch_norm=synced needs one of each",
                advice="a larger batch=, less deploy.accumulation=, or deploy.batch_norm=first",
            )
        return sizes

    def _reduction_of(self, task: nn.Module) -> Reduction:
        learning = [parameter for parameter in task.parameters() if parameter.requires_grad]
        if self.reduction is None or [*map(id, learning)] != [*map(id, self._learning)]:
            self._forget_reduction()
            self._learning = learning
            self.reduction = Reduction(learning, self.group)
        return self.reduction

    def _join(self, own: Losses, reduction: Reduction) -> Losses:
        """Sums over all replicas: of the losses, and of the gradients in their parameters."""
        sums = torch.stack([own.weight, *own.terms.values()]).double()
        used = torch.tensor(reduction.used(), dtype=torch.float64, device=self.device)
        # All that has to be added up besides the gradients, in one message.
        numbers = torch.cat((sums, used))
        reduction.send_rest()
        self.group.add(numbers)
        reduction.finish()
        reduction.leave_out(numbers[len(sums) :].tolist())
        weight, *values = numbers[: len(sums)].to(own.weight.dtype)
        return Losses(terms=dict(zip(own.terms, values, strict=True)), weight=weight)
