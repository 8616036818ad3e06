"""The base of strategies whose replicas have one clone each."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import reduce
from typing import NamedTuple

from torch import Tensor, nn

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import Deployment
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.synced_norms import SyncedNorms
from boxcrew.plan.plan import Plan


class MicroBatch(NamedTuple):
    """A replica's samples of one micro-batch."""

    batch: Batch
    counts: bool  # False: stand-ins, with which a replica that has no sample takes part in collectives


class OneClone(Deployment):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.device = self.first_device
        self.synced = plan.batch_norm == "synced" and group.num_replicas > 1
        self.needs_every_micro_batch = self.synced  # of all replicas, because it has collectives inside

    @abstractmethod
    def compute_all(self, task: nn.Module, micro_batches: Sequence[MicroBatch], phase: str) -> Losses:
        """Return sums of the losses over all replicas; the parameters then have sums of the gradients."""

    def setup_module(self, module: nn.Module) -> nn.Module:
        placed = super().setup_module(module)
        self.broadcast(placed)
        return placed

    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        total = self.compute_all(task, self._micro_batches(batch), phase)
        if batch.is_blank and not self.synced:
            self.restore_buffers(task)
        return total

    def compute_one(self, task: nn.Module, micro_batch: MicroBatch, phase: str) -> Losses:
        counts = micro_batch.counts
        with SyncedNorms(self._all_reduce, counts=counts) if self.synced else nullcontext():
            return self.compute(task, micro_batch.batch, phase, self.device, counts=counts)

    def all_reduce_step(
        self, losses: Iterable[Losses], micro_batches: Sequence[MicroBatch], used: Sequence[float]
    ) -> tuple[Losses, list[float]]:
        """Add up the losses of the micro-batches, and `used`, over all replicas."""
        num = sum(len(micro_batch.batch) for micro_batch in micro_batches if micro_batch.counts)
        return self.all_reduce_losses(reduce(operator.add, losses), num, used)

    def _all_reduce(self, value: Tensor) -> Tensor:
        total = value.clone()
        self.group.all_reduce(total)
        return total

    def _micro_batches(self, batch: Batch) -> list[MicroBatch]:
        """Return at least one. Samples are fewer than planned if some could not be read."""
        every = self.needs_every_micro_batch
        sizes = [sum(counts) for counts in self.execution.plan.replica_split(self.group.rank, len(batch))]
        if batch.is_blank:
            return [MicroBatch(batch, counts=False)] * (len(sizes) if every else 1)
        parts = iter(batch.split(sizes))
        stand_in = MicroBatch(batch.select([0, 0]), counts=False)  # two samples: a BatchNorm may need them
        micro_batches = [MicroBatch(next(parts), counts=True) if size else stand_in for size in sizes]
        return [micro_batch for micro_batch in micro_batches if micro_batch.counts or every]
