"""One process, several clones of the task on as many devices.

The parameter device keeps the parameters that are updated; every clone computes with them, on its share of
the samples, and has gradients of its own, which are added up on the parameter device in the order of clones.
Clones work at the same time, each in a thread; those on the CPU divide its threads among them.
"""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial, reduce

import torch
from torch import Tensor, nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES, Deployment, Module
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.synced_norms import SyncedNorms, ThreadAllReduce
from boxcrew.plan.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class CloneOfTask:
    """The task on one device."""

    task: nn.Module
    module: nn.Module  # the task itself for the first clone on the parameter device, else a copy
    device: torch.device
    shares_memory: bool  # of the parameters with the task

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy from the task what learns, which modules are in training mode, and all values."""
        for module, source in zip(self.module.modules(), self.task.modules(), strict=True):
            module.training = source.training
        for parameter, original in zip(self.module.parameters(), self.task.parameters(), strict=True):
            parameter.requires_grad = original.requires_grad
            if self.shares_memory:
                parameter.data = original.data
            else:
                parameter.copy_(original)
        _copy_buffers(self.task, self.module)

    def add_gradients_to_task(self) -> None:
        """Add the clone's gradients to the task's, and clear them."""
        for parameter, original in zip(self.module.parameters(), self.task.parameters(), strict=True):
            if parameter.grad is not None:
                moved = parameter.grad.to(original.device)
                original.grad = moved if original.grad is None else original.grad.add_(moved)
                parameter.grad = None


Work = list[tuple[Batch, AbstractContextManager[object]]]
"""A clone's samples of each micro-batch, and the context to compute them in."""


@STRATEGIES.register("clones")
class Clones(Deployment):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self._clones: list[CloneOfTask] = []

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        num, on_cpu = len(self.own_clones), sum(clone.device == "cpu" for clone in self.own_clones)
        threads = max(1, self.plan.threads // max(1, on_cpu))

        def set_threads() -> None:
            torch.get_num_threads()  # the first call in a thread sets the number to that of the process
            torch.set_num_threads(threads)  # in this thread alone

        self._pool = ThreadPoolExecutor(num, thread_name_prefix="clone", initializer=set_threads)
        undo.callback(self._pool.shutdown)
        all_started = threading.Barrier(num)
        for future in [self._pool.submit(all_started.wait) for _ in range(num)]:
            future.result()
        torch.set_num_threads(self.plan.threads)  # MKL uses the number that was set last in all threads

    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        clones = self._clones_of(task)
        copies = [clone for clone in clones if clone.module is not task]
        for clone in copies:
            clone.refresh()
        dealt = self.execution.plan.replica_split(self.group.rank, len(batch))
        counts = [sizes for sizes in dealt if any(sizes)]
        reducers = [ThreadAllReduce(sum(map(bool, sizes)), self.group.all_reduce) for sizes in counts]
        works: list[Work] = [[] for _ in clones]
        micro_batches = batch.split([sum(sizes) for sizes in counts])
        synced = self.plan.batch_norm == "synced" and len(self.plan.clones) > 1
        for micro_batch, sizes, reducer in zip(micro_batches, counts, reducers, strict=True):
            busy = [work for work, size in zip(works, sizes, strict=True) if size]
            for index, (work, samples) in enumerate(zip(busy, micro_batch.split(sizes), strict=True)):
                norms = SyncedNorms(partial(reducer.all_reduce, index)) if synced else nullcontext()
                work.append((samples, norms))
        busy_clones = [(clone, work) for clone, work in zip(clones, works, strict=True) if work]
        losses = self._compute_all(busy_clones, phase, reducers)
        for clone in copies:
            clone.add_gradients_to_task()
        if clones[0].module is not task:
            _copy_buffers(clones[0].module, task)
        return reduce(operator.add, (own.to(self.device) for own in losses))

    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        copied = super().eval_copy(module, values)
        if self.own_clones[0].device == self.plan.parameter_device:
            return copied
        return copy.deepcopy(copied).to(self.first_device)

    def discard(self, task: nn.Module) -> None:
        for clone in self._clones:
            clone.module.zero_grad(set_to_none=True)
        super().discard(task)

    def _clones_of(self, task: nn.Module) -> list[CloneOfTask]:
        if not self._clones or self._clones[0].task is not task:
            self._clones = []
            for clone in self.own_clones:
                beside, device = clone.device == self.plan.parameter_device, self.devices.find(clone.device)
                module = task if beside and not self._clones else copy.deepcopy(task).to(device)
                new = CloneOfTask(task=task, module=module, device=device, shares_memory=beside)
                self._clones.append(new)
        return self._clones

    def _compute_all(
        self, busy: Sequence[tuple[CloneOfTask, Work]], phase: str, reducers: Sequence[ThreadAllReduce]
    ) -> list[Losses]:
        """Compute all clones at the same time; if some fail, raise the error of the first."""
        if len(busy) == 1:
            return [self._compute(*busy[0], phase)]

        def abort_if_failed(future: Future[Losses]) -> None:
            if future.exception() is not None:
                for reducer in reducers:
                    reducer.abort()

        futures = [self._pool.submit(self._compute, clone, work, phase) for clone, work in busy]
        for future in futures:
            future.add_done_callback(abort_if_failed)
        try:
            errors = [error for future in futures if (error := future.exception()) is not None]
            for error in errors:
                if not isinstance(error, threading.BrokenBarrierError):
                    raise error
            if errors:
                raise BoxcrewError("clones wait for each other at a BatchNorm that not all of them compute")
            return [future.result() for future in futures]
        finally:
            # An error refers to this frame, which would refer to the error: the tensors of its step would
            # stay in memory until the next garbage collection.
            errors, error, futures = [], None, []

    def _compute(self, clone: CloneOfTask, work: Work, phase: str) -> Losses:
        losses = []
        for samples, context in work:
            with context:
                losses.append(self.compute(clone.module, samples, phase, clone.device))
        return reduce(operator.add, losses)


@torch.no_grad()
def _copy_buffers(source: nn.Module, target: nn.Module) -> None:
    for buffer, original in zip(target.buffers(), source.buffers(), strict=True):
        buffer.copy_(original)
