"""One process, several clones of the task on as many devices.

The parameter device keeps the one true set of parameters; every clone computes with it, on its share of the
samples, and has gradients of its own, which are added up on the parameter device in the order of the clones.
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
from boxcrew.deploy.deployment import STRATEGIES
from boxcrew.deploy.devices import Devices
from boxcrew.deploy.eval_copy import Module
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies._local import Local
from boxcrew.deploy.synced_norms import Meeting, SyncedNorms
from boxcrew.plan.plan import Clone, Plan


class CloneOfTask:
    """The task as one device has it. The first clone is the task itself if it is where the parameters are."""

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
        """Makes the clone what the task is: what learns, which modules train, all values."""
        if self.is_task:
            return
        for mine, true in zip(self.module.modules(), self.task.modules(), strict=True):
            mine.training = true.training
        for parameter, source in zip(self.module.parameters(), self.task.parameters(), strict=True):
            parameter.requires_grad = source.requires_grad
            if self._shares_memory:
                parameter.data = source.data
            else:
                parameter.copy_(source)
        _copy_buffers(self.task, self.module)

    def hand_over(self) -> None:
        """Adds the clone's gradients to the task's, and forgets them."""
        if self.is_task:
            return
        for parameter, source in zip(self.module.parameters(), self.task.parameters(), strict=True):
            if parameter.grad is None:
                continue
            moved = parameter.grad.to(source.device)
            source.grad = moved if source.grad is None else source.grad.add_(moved)
            parameter.grad = None

    def forget(self) -> None:
        if not self.is_task:
            self.module.zero_grad(set_to_none=True)

    def hand_over_buffers(self) -> None:
        """Its statistics are the task's from now on."""
        if not self.is_task:
            _copy_buffers(self.module, self.task)


Work = Sequence[tuple[Batch, AbstractContextManager[object]]]
"""A clone's pieces of a step, and what to compute each in."""


@STRATEGIES.register("clones")
class Clones(Local):
    def __init__(self, plan: Plan, devices: Devices, group: ReplicaGroup) -> None:
        super().__init__(plan, devices, group)
        self._own = plan.replicas[group.rank].clones
        self._clones: list[CloneOfTask] = []
        self._pool: ThreadPoolExecutor | None = None

    def set_up(self, undo: ExitStack) -> None:
        super().set_up(undo)
        on_cpu = sum(clone.device == "cpu" for clone in self._own)
        self._pool = _start_threads(
            len(self._own), compute_threads=max(1, self.plan.threads // max(1, on_cpu))
        )
        undo.callback(self._pool.shutdown)
        torch.set_num_threads(self.plan.threads)  # MKL takes the last word for that of all threads

    def add_up(self, task: nn.Module, batch: Batch, phase: str) -> Losses:
        clones = self._clones_of(task)
        for clone in clones:
            clone.refresh()
        counts = [sizes for sizes in self.plan.replica_split(self.group.rank, len(batch)) if any(sizes)]
        parts = batch.split([sum(sizes) for sizes in counts])
        meetings = [Meeting(sum(size > 0 for size in sizes), self.group.all_reduce) for sizes in counts]
        works = self._works(parts, counts, meetings)
        busy = [(clone, work) for clone, work in zip(clones, works, strict=True) if work]
        done = self._compute_all(busy, phase, meetings)
        for clone in clones:
            clone.hand_over()
        clones[0].hand_over_buffers()
        return reduce(operator.add, (losses.to(self.device) for losses in done))

    def eval_copy(self, module: Module, values: Mapping[str, Tensor] | None = None) -> Module:
        lent = super().eval_copy(module, values)
        if self._own[0].device == self.plan.parameter_device:
            return lent
        return copy.deepcopy(lent).to(self._first_device)

    def move(self, inputs: Tensor) -> Tensor:
        return inputs.to(self._first_device, memory_format=self.format_of(inputs), non_blocking=True)

    @property
    def _first_device(self) -> torch.device:
        return self.devices.find(self._own[0].device)

    def discard(self, task: nn.Module) -> None:
        for clone in self._clones:
            clone.forget()
        super().discard(task)

    def _clones_of(self, task: nn.Module) -> list[CloneOfTask]:
        if not self._clones or self._clones[0].task is not task:
            self._clones = [self._clone(task, i, clone) for i, clone in enumerate(self._own)]
        return self._clones

    def _clone(self, task: nn.Module, index: int, clone: Clone) -> CloneOfTask:
        at_home = clone.device == self.plan.parameter_device
        return CloneOfTask(
            task,
            self.devices.find(clone.device),
            is_task=at_home and index == 0,
            shares_memory=at_home,
        )

    def _works(
        self, parts: Sequence[Batch], counts: Sequence[Sequence[int]], meetings: Sequence[Meeting]
    ) -> list[Work]:
        works: list[list[tuple[Batch, AbstractContextManager[object]]]] = [[] for _ in self._own]
        for part, sizes, meeting in zip(parts, counts, meetings, strict=True):
            busy = [index for index, size in enumerate(sizes) if size]
            for seat, (index, piece) in enumerate(zip(busy, part.split(sizes), strict=True)):
                works[index].append((piece, self._norms(partial(meeting.add, seat))))
        return list(works)

    def _norms(self, add: partial[Tensor]) -> AbstractContextManager[object]:
        synced = self.plan.batch_norm == "synced" and len(self.plan.clones) > 1
        return SyncedNorms(add) if synced else nullcontext()

    def _compute_all(
        self, busy: Sequence[tuple[CloneOfTask, Work]], phase: str, meetings: Sequence[Meeting]
    ) -> list[Losses]:
        """At the same time; what the first clone that failed says is the error."""
        if len(busy) == 1:
            clone, work = busy[0]
            return [self._compute(clone, work, phase)]
        assert self._pool is not None
        futures = [self._pool.submit(self._compute, clone, work, phase) for clone, work in busy]
        for future in futures:
            future.add_done_callback(partial(_free_others, meetings))
        try:
            errors = [error for future in futures if (error := future.exception()) is not None]
            for error in errors:
                if not isinstance(error, threading.BrokenBarrierError):
                    raise error
            if errors:
                raise BoxcrewError("clones wait for each other at a BatchNorm that not all of them come to")
            return [future.result() for future in futures]
        finally:
            # An error knows this frame, and through it would know itself: what its step had in memory would
            # stay there until the garbage is next collected.
            errors, error, futures = [], None, []

    def _compute(self, clone: CloneOfTask, work: Work, phase: str) -> Losses:
        return reduce(operator.add, (self._piece(clone, *one, phase) for one in work))

    def _piece(
        self, clone: CloneOfTask, piece: Batch, context: AbstractContextManager[object], phase: str
    ) -> Losses:
        with context:
            return self.compute(clone.module, piece, phase, clone.device)


def _start_threads(num: int, *, compute_threads: int) -> ThreadPoolExecutor:
    """All at once, each told to compute with so many threads of its own."""
    pool = ThreadPoolExecutor(
        max_workers=num,
        thread_name_prefix="clone",
        initializer=partial(_compute_with, compute_threads),
    )
    all_there = threading.Barrier(num)
    for future in [pool.submit(all_there.wait) for _ in range(num)]:
        future.result()
    return pool


def _compute_with(num: int) -> None:
    """In this thread. Only after torch was asked does it keep what it is told: the first question makes it
    take over the number of the whole process.
    """
    torch.get_num_threads()
    torch.set_num_threads(num)


def _free_others(meetings: Sequence[Meeting], future: Future[Losses]) -> None:
    if future.exception() is not None:
        for meeting in meetings:
            meeting.leave()


@torch.no_grad()
def _copy_buffers(source: nn.Module, target: nn.Module) -> None:
    for mine, other in zip(target.buffers(), source.buffers(), strict=True):
        mine.copy_(other)
