"""What a task's step takes, worked out without computing it: on torch's device for tensors without data."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from boxcrew.core.torch_tools.recompute import recomputing
from boxcrew.core.types import Batch, Losses
from boxcrew.core.workload import Line, Pass, Peak, Workload
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import Task
from boxcrew.tasks.cost.operations import operations
from boxcrew.tasks.phases import learning_in, shares_of

FEW, MORE = 2, 4  # samples that a step is looked at with; of one some operators work in another order
VERSION = 3  # of how it is done: what was worked out by another is not to be used


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, notes the bytes of all tensors that are made for as long as they live, the operations of
    convolutions and products, and the bytes that operators read and write. The bytes of `known` are not held
    against anybody.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0  # bytes, now
        self.peak = 0  # and at the most
        self.course: list[int] = []  # and after every operator
        self.operations = 0
        self.traffic = 0
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._held: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        made = func(*args, **given)
        self.operations += operations(func, args, made)
        results = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        if not func.is_view:
            read = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
            self.traffic += sum(tensor.nbytes for tensor in (*read, *results))
        for tensor in results:
            self._note(tensor.untyped_storage())
        self.course.append(self.live)
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known or key in self._held:
            return
        self.live += size
        self.peak = max(self.peak, self.live)

        def gone(_: object) -> None:
            self.live -= size
            del self._held[key]

        self._held[key] = weakref.ref(storage, gone)


Examples = Callable[[int], Batch]
"""A batch of so many samples, as large in every respect as the task can meet."""


def workload_of(
    task: Task, examples: Examples, *, slots: int, averages: bool, recompute: bool = False
) -> Workload:
    """`slots`: tensors that the optimizer keeps for each parameter that learns now. `recompute`: also what a
    step takes that computes activations again.
    """
    bare = copy.deepcopy(task).to("meta")
    few, more = (_account(bare, examples(num)) for num in (FEW, MORE))
    again = None
    if recompute:
        again = _pass(*(_account(bare, examples(num), recomputing(bare)) for num in (FEW, MORE)))
    return Workload(
        parameters=_size(task.parameters()),
        gradients=_size(p for p in task.parameters() if p.requires_grad),
        buffers=_size(task.buffers()),
        largest_layer=max(_size(layer.parameters(recurse=False)) for layer in task.modules()),
        slots=slots,
        averages=int(averages),
        batch=Line(fixed=0, each=_size(_tensors(examples(1)))),
        whole=_pass(few, more),
        evaluated=_peak(*(_looked_at(bare, examples(num)) for num in (FEW, MORE))),
        recomputed=again,
        forward_operations=few.forward_operations // FEW,
        least_samples=_least(bare, examples),
        depthwise=has_depthwise(task),
    )


@dataclass(frozen=True, kw_only=True)
class _Step:
    """What a ledger has found of one."""

    activations: int
    course: Sequence[int]  # bytes, after every operator
    forward_operations: int
    operations: int
    traffic: int


def _account(bare: Task, batch: Batch, way: AbstractContextManager[None] | None = None) -> _Step:
    batch = batch.to("meta")
    ledger = Ledger([*bare.parameters(), *bare.buffers(), *_tensors(batch)])
    activations = 0
    forward = operations = traffic = 0.0  # of a step, on the whole: not every step has every phase
    with way or nullcontext(), ledger:
        for phase, share in shares_of(bare).items():
            ledger.operations = ledger.traffic = 0
            with learning_in(bare, phase):
                losses: Losses = bare(batch, phase)
                activations = max(activations, ledger.live)
                forward += share * ledger.operations
                losses.total().backward()  # type: ignore[no-untyped-call]
            operations += share * ledger.operations
            traffic += share * ledger.traffic
            del losses
            bare.zero_grad(set_to_none=True)
    return _Step(
        activations=activations,
        course=tuple(ledger.course),
        forward_operations=round(forward),
        operations=round(operations),
        traffic=round(traffic),
    )


def _looked_at(bare: Task, batch: Batch) -> Sequence[int]:
    """Bytes after every operator of the network alone, which keeps nothing for backward."""
    batch = batch.to("meta")
    ledger = Ledger([*bare.parameters(), *bare.buffers(), *_tensors(batch)])
    network = bare.get_submodule(bare.network_name)
    with torch.no_grad(), eval_mode(network), ledger:
        network(*bare.network_inputs(batch))
    return tuple(ledger.course)


def _pass(few: _Step, more: _Step) -> Pass:
    return Pass(
        activations=_line(few.activations, more.activations),
        peak=_peak(few.course, more.course),
        operations=(more.operations - few.operations) // (MORE - FEW),
        traffic=(more.traffic - few.traffic) // (MORE - FEW),
    )


def _peak(few: Sequence[int], more: Sequence[int]) -> Peak:
    """From the bytes after every operator. Moments that others exceed for any number of samples are left
    out.
    """
    steepest: dict[int, int] = {}
    for line in map(_line, few, more):
        steepest[line.each] = max(line.fixed, steepest.get(line.each, line.fixed))
    kept: list[Line] = []
    for each in sorted(steepest, reverse=True):
        line = Line(fixed=steepest[each], each=each)
        if all(line.at(1) > other.at(1) for other in kept):
            kept.append(line)
    return Peak(moments=tuple(kept))


def _least(bare: Task, examples: Examples) -> int:
    """The fewest samples: in training mode BatchNorms of single cells refuse one."""
    try:
        _account(bare, examples(1))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        return 2
    return 1


def has_depthwise(model: nn.Module) -> bool:
    """Convolutions of each channel by itself: networks of those are faster channels-last on CPUs, most others
    are not (docs/decisions/0005).
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    return any(1 < layer.groups == layer.in_channels for layer in layers)


def _tensors(batch: Batch) -> list[Tensor]:
    return [batch.inputs, *batch.targets.values(), *batch.extra.values(), batch.draws]


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _line(few: int, more: int) -> Line:
    each = max(0, (more - few) // (MORE - FEW))
    return Line(fixed=few - FEW * each, each=each)
