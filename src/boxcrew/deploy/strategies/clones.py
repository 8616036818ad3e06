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
from functools import partial, reduce

import torch
from torch import Tensor, nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import STRATEGIES, Module
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._local import Local
from boxcrew.deploy.synced_norms import AllReduce, SyncedNorms, ThreadAllReduce
from boxcrew.plan.plan import Plan


class CloneOfTask:
    """The task on one device. The first clone is the task itself if it is on the parameter device."""

    def __init__(self, task: nn.Module, device: torch.device, *, is_task: bool, shares_memory: bool) -> None:
        self.task = task
        self.device = device
        self.module = task if is_task else copy.deepcopy(task).to(device)
        self._shares_memory = shares_memory

    @property
    def is_task(self) -> bool:
        return self.module is self.task

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy from the task what learns, which modules are in training mode, and all values."""
        if self.is_task:
            return
        for module, source in zip(self.module.modules(), self.task.modules(), strict=True):
            module.training = source.training
        for parameter, original in zip(self.module.parameters(), self.task.parameters(), strict=True):
            parameter.requires_grad = original.requires_grad
            if self._shares_memory:
                parameter.data = original.data
            else:
                parameter.copy_(original)
        _copy_buffers(self.task, self.module)

    def add_gradients_to_task(self) -> None:
        """Add the clone's gradients to the task's, and clear them."""
        if self.is_task:
            return
        for parameter, original in zip(self.module.parameters(), self.task.parameters(), strict=True):
            if parameter.grad is None:
                continue
            moved = parameter.grad.to(original.device)
            original.grad = moved if original.grad is None else original.grad.add_(moved)
            parameter.grad = None

    def copy_buffers_to_task(self) -> None:
        if not self.is_task:
            _copy_buffers(self.module, self.task)


Work = Sequence[tuple[Batch, AbstractContextManager[object]]]
"""A clone's samples of each micro-batch, and the context to compute them in."""


@STRATEGIES.register("clones")
class Clones(Local):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self._clones: list[CloneOfTask] = []
        self._pool: ThreadPoolExecutor | None = None

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        on_cpu = sum(clone.device == "cpu" for clone in self.own_clones)
        threads = max(1, self.plan.threads // max(1, on_cpu))
        self._pool = _start_threads(len(self.own_clones), compute_threads=threads)
        undo.callback(self._pool.shutdown)
        torch.set_num_threads(self.plan.threads)  # MKL uses the number that was set last in all threads

    def forward_backward(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        clones = self._clones_of(task)
        for clone in clones:
            clone.refresh()
        dealt = self.execution.plan.replica_split(self.group.rank, len(batch))
        counts = [sizes for sizes in dealt if any(sizes)]
        reducers = [
            ThreadAllReduce(sum(size > 0 for size in sizes), self.group.all_reduce) for sizes in counts
        ]
        works = self._works(batch.split([sum(sizes) for sizes in counts]), counts, reducers)
        busy = [(clone, work) for clone, work in zip(clones, works, strict=True) if work]
        losses = self._compute_all(busy, phase, reducers)
        for clone in clones:
            clone.add_gradients_to_task()
        clones[0].copy_buffers_to_task()
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
                shares_memory = clone.device == self.plan.parameter_device
                is_task = shares_memory and not self._clones
                device = self.devices.find(clone.device)
                self._clones.append(CloneOfTask(task, device, is_task=is_task, shares_memory=shares_memory))
        return self._clones

    def _works(
        self,
        micro_batches: Sequence[Batch],
        counts: Sequence[Sequence[int]],
        reducers: Sequence[ThreadAllReduce],
    ) -> list[Work]:
        """Return the work of each clone, of which some may have none."""
        works: list[list[tuple[Batch, AbstractContextManager[object]]]] = [[] for _ in self.own_clones]
        for micro_batch, sizes, reducer in zip(micro_batches, counts, reducers, strict=True):
            busy = [index for index, size in enumerate(sizes) if size]
            for i, (index, samples) in enumerate(zip(busy, micro_batch.split(sizes), strict=True)):
                works[index].append((samples, self._norms(partial(reducer.all_reduce, i))))
        return list(works)

    def _norms(self, all_reduce: AllReduce) -> AbstractContextManager[object]:
        synced = self.plan.batch_norm == "synced" and len(self.plan.clones) > 1
        return SyncedNorms(all_reduce) if synced else nullcontext()

    def _compute_all(
        self, busy: Sequence[tuple[CloneOfTask, Work]], phase: str, reducers: Sequence[ThreadAllReduce]
    ) -> list[Losses]:
        """Compute all clones at the same time; if some fail, raise the error of the first."""
        if len(busy) == 1:
            clone, work = busy[0]
            return [self._compute(clone, work, phase)]
        assert self._pool is not None
        futures = [self._pool.submit(self._compute, clone, work, phase) for clone, work in busy]
        for future in futures:
            future.add_done_callback(partial(_abort_if_failed, reducers))
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


def _start_threads(num: int, *, compute_threads: int) -> ThreadPoolExecutor:
    """Start all threads at once, each of which computes with so many threads of its own."""
    pool = ThreadPoolExecutor(
        max_workers=num,
        thread_name_prefix="clone",
        initializer=partial(_set_compute_threads, compute_threads),
    )
    all_started = threading.Barrier(num)
    for future in [pool.submit(all_started.wait) for _ in range(num)]:
        future.result()
    return pool


def _set_compute_threads(num: int) -> None:
    """Set torch's number of threads for this thread alone."""
    torch.get_num_threads()  # the first call in a thread sets the number to that of the process
    torch.set_num_threads(num)


def _abort_if_failed(reducers: Sequence[ThreadAllReduce], future: Future[Losses]) -> None:
    if future.exception() is not None:
        for reducer in reducers:
            reducer.abort()


@torch.no_grad()
def _copy_buffers(source: nn.Module, target: nn.Module) -> None:
    for buffer, original in zip(target.buffers(), source.buffers(), strict=True):
        buffer.copy_(original)
