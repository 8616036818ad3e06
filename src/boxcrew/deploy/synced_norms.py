"""BatchNorms over all clones together: statistics of the samples of a step wherever they are computed.

torch has this for process groups of GPUs only (`SyncBatchNorm`). Here it works for clones in threads and on
CPUs too, and no module is replaced: every call of `batch_norm` inside the context is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.torch_tools.batch_norm import batch_norm

Add = Callable[[Tensor], Tensor]
"""The sum of what all clones give at this point; all must come to it."""


PATIENCE = 600.0  # seconds that one clone waits for the others


class Meeting:
    """Where clones in threads of one process add something up; `beyond` then makes the sum that over all
    processes. If one cannot come, `leave` frees the rest.
    """

    def __init__(self, num: int, beyond: Callable[[Tensor], None]) -> None:
        self._barrier = threading.Barrier(num, action=self._add_up, timeout=PATIENCE)
        self._brought: list[Tensor | None] = [None] * num
        self._beyond = beyond
        self._total: Tensor | None = None

    def add(self, seat: int, value: Tensor) -> Tensor:
        self._brought[seat] = value
        self._barrier.wait()
        assert self._total is not None
        return self._total.to(value.device)

    def _add_up(self) -> None:
        """By the last to come. Nobody can come again before all have taken the sum."""
        given = [brought for brought in self._brought if brought is not None]
        if any(brought.shape != given[0].shape for brought in given):
            raise BoxcrewError("clones meet at different BatchNorms: they do not compute the same layers")
        total = given[0].clone()
        for brought in given[1:]:  # in the order of seats, so that the sum is the same each time
            total += brought.to(total.device)
        self._beyond(total)
        self._total = total

    def leave(self) -> None:
        self._barrier.abort()


class SyncedNorms(TorchFunctionMode):
    """Inside, BatchNorms in training mode normalise by the statistics of all clones' samples. A clone whose
    samples do not `count` takes part without adding to them.
    """

    def __init__(self, add: Add, *, counts: bool = True) -> None:
        super().__init__()
        self._add = add
        self._counts = counts

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        normed = None
        if func in {nn.functional.batch_norm, batch_norm}:
            normed = self._batch_norm(_Call(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {})) if normed is None else normed

    def _batch_norm(self, call: _Call) -> Tensor | None:
        """None where it is as with one clone: not in training, or there is only one value in all."""
        if not call.training:
            return None
        normed: Tensor
        normed, mean, var, count = _Normalise.apply(call.input, call.eps, self._add, float(self._counts))
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
    """What `batch_norm` is called with, in its order."""

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


class _Normalise(torch.autograd.Function):
    """Zero mean and unit variance of each channel over all clones."""

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, eps: float, add: Add, weight: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = given.to(torch.promote_types(given.dtype, torch.float32))
        dims = [0, *range(2, values.ndim)]
        own = values.new_tensor([values.numel() / values.shape[1]])
        sums = add(weight * torch.cat((values.sum(dims), own)))
        count = sums[-1:]
        mean = sums[:-1] / count
        centred = values - _channels(mean, values)
        # A second meeting, for sums of squares: squares of what is not centred would cancel out.
        var = add(weight * centred.square().sum(dims)) / count
        scale = (var + eps).rsqrt()
        normed = centred * _channels(scale, values)
        ctx.save_for_backward(normed, scale, count)
        ctx.add, ctx.dims, ctx.dtype = add, dims, given.dtype
        ctx.mark_non_differentiable(mean, var, count)
        return normed, mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        normed, scale, count = ctx.saved_tensors
        gradient = gradients[0]
        own = torch.stack((gradient.sum(ctx.dims), (gradient * normed).sum(ctx.dims)))
        mean, slope = ctx.add(own) / count
        flat = gradient - _channels(mean, normed) - normed * _channels(slope, normed)
        return (flat * _channels(scale, normed)).to(ctx.dtype), None, None, None
