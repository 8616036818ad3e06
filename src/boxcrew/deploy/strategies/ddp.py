"""Processes that all have all parameters, compute their share of a step, and make the same update.

A step is computed by the clones of the plan, and a replica computes those that it has been dealt one after
the other; whatever is random or summed belongs to a clone, never to a replica. With `exact` sums are made in
the order of clones too: any number of replicas then learns the same, bit for bit (docs/decisions/0031).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial, reduce

import torch
from torch import Tensor, nn

from boxcrew.core.torch_tools.batch_norm import is_batch_norm
from boxcrew.core.torch_tools.foreach import copy_all
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES, Deployment, StepSums
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._gradient_buckets import GradientReducer
from boxcrew.deploy.strategies._gradient_sums import gradient_sum
from boxcrew.deploy.strategies._micro_batches import MicroBatch, micro_batches_of
from boxcrew.deploy.synced_norms import SyncedNorms
from boxcrew.plan.plan import Plan


@STRATEGIES.register("ddp")
class Ddp(Deployment):
    computes_in_turn = True

    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self.device = self.first_device
        self.synced = plan.batch_norm == "synced" and len(plan.clones) > 1
        self.reducers: dict[str, GradientReducer] = {}  # by phase
        self._num_samples = 0  # of the last step, on all replicas

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        undo.callback(self._close_reducers)

    def setup_module(self, module: nn.Module) -> nn.Module:
        placed = super().setup_module(module)
        self.broadcast(placed)
        return placed

    @property
    def can_regroup(self) -> bool:
        """Only messages over gloo, of tensors in main memory, have been tried."""
        return self.group.is_elastic and set(self.plan.devices) == {"cpu"} and not self.synced

    @property
    def positions(self) -> list[int]:
        plan = self.execution.plan
        return [position for clone in self.own_indices for position in plan.clone_positions(clone)]

    @property
    def share_sizes(self) -> list[int]:
        return [len(self.execution.plan.clone_positions(clone)) for clone in self.own_indices]

    def num_samples(self, batch: Batch) -> int:  # noqa: ARG002
        """Return the samples that all replicas could read."""
        return self._num_samples

    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        reducer = self._reducer_of(task, phase)
        computed: list[StepSums] = []
        kept: list[Tensor] = []  # buffers after the first clone of this replica
        for clone, share in zip(self.own_indices, self._shares_of(batch), strict=True):
            is_last = clone == self.own_indices[-1]
            with self._apart() if computed else nullcontext():
                if computed:
                    kept = kept or [buffer.clone() for buffer in task.buffers()]
                    self.restore_buffers(task)
                self.seed_clone(clone)
                # Messages of BatchNorms and of gradients must leave in one order on all replicas, and where
                # some parameters are used by few of them only those of BatchNorms surely do.
                begin = reducer.begin if is_last and not self.synced else None
                computed.append(self._compute_clone(clone, task, share, phase, begin))
            if not is_last:
                reducer.store()
        reducer.send_rest()
        copy_all(list(task.buffers()) if kept else [], kept)
        total = self._all_reduce_sums(computed, reducer.used())
        reducer.finish()
        reducer.clear_unused(total.used)
        self._num_samples = total.num_samples
        if not self.synced:
            self._broadcast_statistics(task)
        return total.losses

    def discard(self, task: nn.Module) -> None:
        for reducer in self.reducers.values():
            reducer.abandon()
        super().discard(task)

    def abandon(self, task: nn.Module) -> None:
        self._close_reducers()  # what they have sent is not waited for: nobody may be there to answer
        super().abandon(task)

    def regroup(self, group: ReplicaGroup) -> None:
        self._close_reducers()
        super().regroup(group)

    def _shares_of(self, batch: Batch) -> Sequence[Batch]:
        assert len(batch.shares) == len(self.own_clones), "a share for each clone of this replica"
        return batch.shares

    def _compute_clone(
        self, clone: int, task: nn.Module, share: Batch, phase: str, begin: Callable[[], None] | None
    ) -> StepSums:
        """Compute the share of one clone; `begin` is called before its last micro-batch."""
        sizes = self.execution.plan.clone_split(clone, len(share))
        micro_batches = micro_batches_of(share, sizes, every=self.synced)
        losses = [self._compute_one(clone, task, each, phase) for each in micro_batches[:-1]]
        if begin is not None:
            begin()
        losses.append(self._compute_one(clone, task, micro_batches[-1], phase))
        if share.is_blank and not self.synced:
            self.restore_buffers(task)
        num = sum(len(micro_batch.batch) for micro_batch in micro_batches if micro_batch.counts)
        return StepSums(losses=reduce(operator.add, losses), num_samples=num)

    def _compute_one(self, clone: int, task: nn.Module, micro_batch: MicroBatch, phase: str) -> Losses:
        samples, counts = micro_batch
        norms = SyncedNorms(partial(self._all_reduce, clone), counts=counts)
        with norms if self.synced else nullcontext():
            return self.compute(task, samples, phase, self.device, counts=counts)

    def _all_reduce(self, clone: int, value: Tensor) -> Tensor:
        """Return the sum of a clone's value and those of all others."""
        num = len(self.plan.clones)
        if not self.plan.exact or num <= 2:  # the sum of two has one order
            total = value.clone()
            self.group.all_reduce(total)
            return total
        rows = value.new_zeros(num, *value.shape)
        rows[clone] = value
        self.group.all_reduce(rows)
        return reduce(operator.add, rows.unbind())

    def _all_reduce_sums(self, computed: Sequence[StepSums], used: Sequence[Sequence[float]]) -> StepSums:
        """Add up the sums of this replica's clones and of all others, by clone if that matters."""
        rows = self.own_indices if self.plan.exact else [0] * len(computed)
        own = [sums._replace(used=each) for sums, each in zip(computed, used, strict=True)]
        num_rows = len(self.plan.clones) if self.plan.exact else 1
        return self.all_reduce_losses(list(zip(rows, own, strict=True)), num_rows=num_rows)

    @torch.no_grad()
    def _broadcast_statistics(self, task: nn.Module) -> None:
        """Copy the first clone's statistics of BatchNorms to all replicas: each then has the full state."""
        norms = [module for module in task.modules() if is_batch_norm(module) and module.training]
        buffers = [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
        if self.group.num_replicas == 1 or not buffers:
            return
        parts = [buffer.reshape(-1).view(torch.uint8) for buffer in buffers]
        whole = torch.cat(parts)
        self.group.broadcast([whole])
        pieces = torch.split(whole, [len(part) for part in parts])
        for buffer, part in zip(buffers, pieces, strict=True):
            buffer.copy_(part.clone().view(buffer.dtype).view_as(buffer))

    def _apart(self) -> AbstractContextManager[None]:
        """Leave the random numbers after it as they were before it."""
        if self.device.type == "cpu":
            return torch.random.fork_rng(devices=[])
        return torch.random.fork_rng(devices=[self.device], device_type=self.device.type)

    def _reducer_of(self, task: nn.Module, phase: str) -> GradientReducer:
        """Return the phase's reducer, a new one if other parameters learn than before: layers have thawed."""
        learning = [parameter for parameter in task.parameters() if parameter.requires_grad]
        reducer = self.reducers.get(phase)
        if reducer is None or [*map(id, learning)] != [*map(id, reducer.parameters)]:
            if reducer is not None:
                reducer.close()
            plan = self.execution.plan
            dealt = [plan.clones_of(rank) for rank in range(len(plan.replicas))]
            sums = gradient_sum(self.group, dealt, exact=plan.exact)
            reducer = self.reducers[phase] = GradientReducer(learning, sums)
        return reducer

    def _close_reducers(self) -> None:
        for reducer in self.reducers.values():
            reducer.close()
        self.reducers.clear()
