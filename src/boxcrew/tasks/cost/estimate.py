"""The workload of a task's step, traced on torch's meta device, whose tensors have shapes but no data."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from boxcrew.core.errors import ModelError
from boxcrew.core.torch_tools.dispatch import OperatorMode, storage_key, tensors_in
from boxcrew.core.torch_tools.recompute import recomputing
from boxcrew.core.types import Batch, Losses
from boxcrew.core.workload import LinearBytes, PassCost, Peak, Workload
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import Task, freeze_other_phases
from boxcrew.tasks.cost.flops import count_operations
from boxcrew.tasks.cost.meta_results import meta_result

SMALL_BATCH, LARGE_BATCH = 2, 4  # samples of the two traced steps; with 1, some operators differ
VERSION = 3  # of the method: stored results of another version are not used


class CostTracker(OperatorMode):
    """Tracks, while it is active, what torch's operators cost.

    That is the bytes of all live tensors they have made (without those in `existing`), the operations of
    convolutions and matrix products, and the bytes that operators read and write (`traffic`).
    """

    def __init__(self, existing: Iterable[Tensor]) -> None:
        super().__init__()
        self.live = 0  # bytes
        self.peak = 0  # the maximum of `live`
        self.live_after: list[int] = []  # `live` after each operator
        self.operations = 0
        self.traffic = 0
        self._existing = {storage_key(tensor.untyped_storage()) for tensor in existing}
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = meta_result(func, args, kwargs or {})
        self.operations += count_operations(func, args, result)
        written = tensors_in(result)
        if not func.is_view:
            self.traffic += _size([*tensors_in(args), *written])
        for tensor in written:
            self._track(tensor.untyped_storage())
        self.live_after.append(self.live)
        return result

    def _track(self, storage: torch.UntypedStorage) -> None:
        key, size = storage_key(storage), storage.nbytes()
        if key in self._existing or key in self._alive:
            return
        self.live += size
        self.peak = max(self.peak, self.live)

        def freed(_: object) -> None:
            self.live -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, freed)


BatchFactory = Callable[[int], Batch]
"""Makes a batch of so many samples, as large in every respect as the task can meet."""


def trace_workload(
    task: Task, make_batch: BatchFactory, *, slots: int, averages: bool, recompute: bool = False
) -> Workload:
    """Trace steps of two sizes and return what a step of any size takes.

    `slots`: tensors that the optimizer keeps for each trainable parameter. `recompute`: trace also a step
    that computes activations again in backward. `ModelError` if a step's operators depend on its number of
    samples.
    """
    bare, sizes = copy.deepcopy(task).to("meta"), (SMALL_BATCH, LARGE_BATCH)
    small, large = (_trace_step(bare, make_batch(num)) for num in sizes)
    again = [_trace_step(bare, make_batch(num), recomputing(bare)) for num in sizes] if recompute else None
    return Workload(
        parameters=_size(task.parameters()),
        gradients=_size(p for p in task.parameters() if p.requires_grad),
        buffers=_size(task.buffers()),
        largest_layer=max(_size(layer.parameters(recurse=False)) for layer in task.modules()),
        slots=slots,
        averages=int(averages),
        batch=LinearBytes(fixed=0, each=_size(_tensors(make_batch(1)))),
        without_recompute=_pass(small, large),
        evaluation_peak=_peak(*(_trace_inference(bare, make_batch(num)) for num in sizes)),
        with_recompute=_pass(*again) if again else None,
        forward_operations=small.forward_operations // SMALL_BATCH,
        min_samples=_least_samples(bare, make_batch),
        depthwise=has_depthwise(task),
    )


@dataclass(frozen=True, kw_only=True)
class _StepCost:
    """The cost of one traced step; operations and traffic are means over steps with different phases."""

    activations: int  # bytes that forward keeps for backward
    live_after: Sequence[int]  # bytes, after each operator
    forward_operations: int
    operations: int
    traffic: int  # bytes


def _tracker(bare: Task, batch: Batch) -> CostTracker:
    return CostTracker([*bare.parameters(), *bare.buffers(), *_tensors(batch)])


def _trace_step(bare: Task, batch: Batch, mode: AbstractContextManager[None] | None = None) -> _StepCost:
    batch = batch.to("meta")
    tracker = _tracker(bare, batch)
    activations = 0
    forward = operations = traffic = 0.0
    phases = [phase for step in range(bare.cycle) for phase in bare.phases_of(step)]
    with mode or nullcontext(), tracker:
        for phase in bare.phases:
            frequency = phases.count(phase) / bare.cycle
            tracker.operations = tracker.traffic = 0
            with freeze_other_phases(bare, phase):
                losses: Losses = bare(batch, phase)
                activations = max(activations, tracker.live)
                forward += frequency * tracker.operations
                losses.total().backward()  # type: ignore[no-untyped-call]
            operations += frequency * tracker.operations
            traffic += frequency * tracker.traffic
            del losses
            bare.zero_grad(set_to_none=True)
    return _StepCost(
        activations=activations,
        live_after=tuple(tracker.live_after),
        forward_operations=round(forward),
        operations=round(operations),
        traffic=round(traffic),
    )


def _trace_inference(bare: Task, batch: Batch) -> Sequence[int]:
    """Return the live bytes after each operator of the network alone, which keeps nothing for backward."""
    batch = batch.to("meta")
    tracker = _tracker(bare, batch)
    network = bare.get_submodule(bare.network_name)
    with torch.no_grad(), eval_mode(network), tracker:
        network(*bare.network_inputs(batch))
    return tuple(tracker.live_after)


def _pass(small: _StepCost, large: _StepCost) -> PassCost:
    return PassCost(
        activations=_line(small.activations, large.activations),
        peak=_peak(small.live_after, large.live_after),
        operations=(large.operations - small.operations) // (LARGE_BATCH - SMALL_BATCH),
        traffic=(large.traffic - small.traffic) // (LARGE_BATCH - SMALL_BATCH),
    )


def _peak(small: Sequence[int], large: Sequence[int]) -> Peak:
    """Return the peak of live bytes for any number of samples, from those after each operator.

    Operators that others exceed for every number of samples are left out.
    """
    if len(small) != len(large):
        raise ModelError(
            f"the network runs {len(small)} operators for {SMALL_BATCH} samples but {len(large)} for "
            f"{LARGE_BATCH}: its memory cannot be predicted",
            advice="make forward and losses run the same operators for any number of samples: "
            "no Python loop over them",
        )
    lines = {_line(*live) for live in zip(small, large, strict=True)}
    highest: list[LinearBytes] = []
    for line in sorted(lines, key=lambda line: (line.each, line.fixed), reverse=True):
        if all(line.at(1) > steeper.at(1) for steeper in highest):
            highest.append(line)
    return Peak(moments=tuple(highest))


def _least_samples(bare: Task, make_batch: BatchFactory) -> int:
    """Return the fewest samples of a step: BatchNorm on 1 x 1 maps refuses a single one in training."""
    batch = make_batch(1).to("meta")
    try:
        with _tracker(bare, batch):
            for phase in bare.phases:
                with freeze_other_phases(bare, phase):
                    bare(batch, phase)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        return 2
    return 1


def has_depthwise(model: nn.Module) -> bool:
    """Return whether a model has depthwise convolutions: channels-last is faster on CPUs (decision 0005)."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    return any(1 < layer.groups == layer.in_channels for layer in layers)


def _tensors(batch: Batch) -> list[Tensor]:
    return [batch.inputs, *batch.targets.values(), *batch.extra.values(), batch.draws]


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _line(small: int, large: int) -> LinearBytes:
    """Return the line through two values, at the sizes of the traced steps; it never falls."""
    each = max(0, (large - small) // (LARGE_BATCH - SMALL_BATCH))
    return LinearBytes(fixed=small - SMALL_BATCH * each, each=each)
