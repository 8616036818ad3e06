"""What a task's step takes, worked out without computing it: on torch's device for tensors without data."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from boxcrew.core.types import Batch, Losses
from boxcrew.core.workload import Line, Workload

FEW, MORE = 2, 4  # samples that a step is looked at with; BatchNorms of single cells refuse one


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, notes the bytes of all tensors that are made for as long as they live, and the operations of
    convolutions and products. `known` are not counted.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0  # bytes, now
        self.peak = 0  # and at the most
        self.flops = 0
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
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flops += count(*args, **given, out_val=made)
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage())
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


def workload_of(task: nn.Module, examples: Examples, *, slots: int, averages: bool) -> Workload:
    """`slots`: tensors that the optimizer keeps for each parameter that learns now."""
    bare = copy.deepcopy(task).to("meta")
    few, more = (_account(bare, examples(num)) for num in (FEW, MORE))
    return Workload(
        parameters=_size(task.parameters()),
        gradients=_size(p for p in task.parameters() if p.requires_grad),
        buffers=_size(task.buffers()),
        slots=slots,
        averages=int(averages),
        inputs=_line(few["inputs"], more["inputs"]),
        activations=_line(few["activations"], more["activations"]),
        step=_line(few["step"], more["step"]),
        flops=few["flops"] // FEW,
    )


def _account(bare: nn.Module, batch: Batch) -> dict[str, int]:
    """Of one step."""
    batch = batch.to("meta")
    inputs = [batch.inputs, *batch.targets.values()]
    ledger = Ledger([*bare.parameters(), *bare.buffers(), *inputs])
    with ledger:
        losses: Losses = bare(batch, "train")
        activations, flops = ledger.live, ledger.flops
        losses.total().backward()  # type: ignore[no-untyped-call]
    bare.zero_grad(set_to_none=True)
    return {"inputs": _size(inputs), "activations": activations, "step": ledger.peak, "flops": flops}


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _line(few: int, more: int) -> Line:
    each = (more - few) // (MORE - FEW)
    return Line(fixed=max(0, few - FEW * each), each=max(0, each))
