"""How many operations torch's operators do: two for each pair of numbers that is multiplied and added.

torch counts them too, but of a backward of grouped convolutions as many as if there were no groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def operations(operator: Any, args: tuple[Any, ...], made: Any) -> int:
    """Of one call; 0 of an operator that neither convolves nor multiplies matrices."""
    count = _COUNTS.get(operator.overloadpacket)
    return 0 if count is None else count(args, made)


def _convolution(args: tuple[Any, ...], made: Any) -> int:
    weight, transposed = args[1], args[6]
    grid: Tensor = args[0] if transposed else made
    return 2 * _products(weight, grid)


def _convolution_backward(args: tuple[Any, ...], made: Any) -> int:  # noqa: ARG001
    """Of each gradient that is wanted (inputs, weight) as many as forward has."""
    grown, inputs, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
    grid: Tensor = inputs if transposed else grown
    num_wanted = int(wanted[0]) + int(wanted[1])
    return num_wanted * 2 * _products(weight, grid)


def _products(weight: Tensor, grid: Tensor) -> int:
    """At every place of the grid every weight is used once."""
    return weight.numel() * grid.shape[0] * math.prod(grid.shape[2:])


def _product(first: int) -> Callable[[tuple[Any, ...], Any], int]:
    """Of matrices; `first` is where in the arguments the first one stands."""

    def count(args: tuple[Any, ...], made: Any) -> int:
        inner: int = args[first].shape[-1]
        numbers: int = made.numel()
        return 2 * inner * numbers

    return count


_COUNTS: dict[Any, Callable[[tuple[Any, ...], Any], int]] = {
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten.mm: _product(0),
    aten.bmm: _product(0),
    aten.addmm: _product(1),
    aten.baddbmm: _product(1),
}
