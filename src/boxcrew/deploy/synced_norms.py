"""BatchNorms over all clones: statistics of all samples of a micro-batch, wherever they are computed.

torch has this for process groups of GPUs only (`SyncBatchNorm`). Here it works for clones in threads and on
CPUs too, and replaces no module: every call of `batch_norm` inside the context is intercepted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.torch_tools.batch_norm import batch_norm

AllReduce = Callable[[Tensor], Tensor]
"""Returns the sum of the tensors of all clones. Collective: all must call it."""

PATIENCE = 600.0  # seconds that one clone waits for the others


class ThreadAllReduce:
    """An all_reduce among `num` clones in threads of one process; `reduce_replicas` then adds the sums of all
    processes, in place. If a clone fails, `abort` releases those that wait for it.
    """

    def __init__(self, num: int, reduce_replicas: Callable[[Tensor], None]) -> None:
        self._barrier = threading.Barrier(num, action=self._add_up, timeout=PATIENCE)
        self._values: list[Tensor | None] = [None] * num
        self._reduce_replicas = reduce_replicas
        self._total: Tensor | None = None

    def all_reduce(self, index: int, value: Tensor) -> Tensor:
        """Return the sum on the device of `value`, which is that of the clone at `index`."""
        self._values[index] = value
        self._barrier.wait()
        assert self._total is not None
        return self._total.to(value.device)

    def _add_up(self) -> None:
        """Add up the values, in the last thread to arrive. None can arrive again before all have the sum."""
        first, *others = [value for value in self._values if value is not None]
        if any(value.shape != first.shape for value in others):
            raise BoxcrewError("clones are at different BatchNorms: they do not compute the same layers")
        total = first.clone()
        for value in others:  # in the order of clones, so that the sum is the same each time
            total += value.to(total.device)
        self._reduce_replicas(total)
        self._total = total

    def abort(self) -> None:
        self._barrier.abort()


class SyncedNorms(TorchFunctionMode):
    """A context in which BatchNorms in training mode normalize by the statistics of all clones' samples. A
    clone whose samples do not `count` takes part without adding to them.
    """

    def __init__(self, all_reduce: AllReduce, *, counts: bool = True) -> None:
        super().__init__()
        self._all_reduce, self._weight = all_reduce, float(counts)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_norm = func in {nn.functional.batch_norm, batch_norm}
        normed = self._batch_norm(_Call(*args, **(kwargs or {}))) if is_norm else None
        return func(*args, **(kwargs or {})) if normed is None else normed

    def _batch_norm(self, call: _Call) -> Tensor | None:
        """Return the result, or None if torch's own is right: not in training, or only one value in all."""
        if not call.training:
            return None
        result: tuple[Tensor, ...] = _Normalize.apply(call.input, call.eps, self._all_reduce, self._weight)
        normed, mean, var, count = result
        if call.input.numel() == call.input.shape[1] and count.item() == 1:
            return None
        if call.running_mean is not None and call.running_var is not None:
            call.running_mean.lerp_(mean, call.momentum)
            call.running_var.lerp_(var * count / (count - 1), call.momentum)
        if call.weight is not None:
            normed = normed * _channels(call.weight, call.input)
        if call.bias is not None:
            normed = normed + _channels(call.bias, call.input)
        return normed.to(call.input.dtype)


class _Call(NamedTuple):
    """The arguments of `batch_norm`, in its order."""

    input: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5


def _channels(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *([1] * (like.ndim - 2)))


class _Normalize(torch.autograd.Function):
    """Zero mean and unit variance of each channel over all clones."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, eps: float, all_reduce: AllReduce, weight: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = input.to(torch.promote_types(input.dtype, torch.float32))
        dims = [0, *range(2, values.ndim)]
        own_count = values.new_tensor([values.numel() / values.shape[1]])
        sums = all_reduce(weight * torch.cat((values.sum(dims), own_count)))
        count = sums[-1:]
        mean = sums[:-1] / count
        centered = values - _channels(mean, values)
        # A second all_reduce, for sums of squares: squares of what is not centered would cancel out.
        var = all_reduce(weight * centered.square().sum(dims)) / count
        scale = (var + eps).rsqrt()
        normed = centered * _channels(scale, values)
        ctx.save_for_backward(normed, scale, count)
        ctx.all_reduce, ctx.dims, ctx.dtype = all_reduce, dims, input.dtype
        ctx.mark_non_differentiable(mean, var, count)
        return normed, mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        normed, scale, count = ctx.saved_tensors
        gradient = gradients[0]
        sums = torch.stack((gradient.sum(ctx.dims), (gradient * normed).sum(ctx.dims)))
        mean, slope = ctx.all_reduce(sums) / count
        flat = gradient - _channels(mean, normed) - normed * _channels(slope, normed)
        return (flat * _channels(scale, normed)).to(ctx.dtype), None, None, None
