"""Results of some operators on the meta device, without torch's own way to them.

Torch finds the shapes of these by running a Python version of the operator that is made of many others. In
networks with a BatchNorm after each convolution that was two thirds of the time of a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _batch_norm(inputs: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    channels = inputs.shape[1]
    return torch.empty_like(inputs), inputs.new_empty(channels), inputs.new_empty(channels)


def _batch_norm_backward(gradient: Tensor, inputs: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    wanted = others[-1]  # of inputs, weight and bias
    shapes = (inputs.shape, inputs.shape[1:2], inputs.shape[1:2])
    return tuple(
        gradient.new_empty(shape) if is_wanted else None
        for shape, is_wanted in zip(shapes, wanted, strict=True)
    )


def _in_place(inputs: Tensor, *_: Any) -> Tensor:
    return inputs


def _like_first(inputs: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(inputs)


RESULTS: Mapping[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.hardtanh_.default: _in_place,
    aten.hardtanh_backward.default: _like_first,
    aten.hardswish.default: _like_first,
    aten.hardswish_.default: _in_place,
    aten.hardswish_backward.default: _like_first,
    aten.leaky_relu_.default: _in_place,
}
"""Operators, each with a function that takes its arguments and makes its results."""


def meta_result(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of an operator on tensors of the meta device, which have shapes but no values."""
    make = RESULTS.get(func)
    if make is None or kwargs or not args[0].is_meta:
        return func(*args, **kwargs)
    return make(*args)
