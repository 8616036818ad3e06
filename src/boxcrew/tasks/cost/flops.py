"""The number of operations of torch's operators: two for each multiplication with its addition.

torch counts them too, but for the backward of grouped convolutions as if there were no groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from boxcrew.nets.layers import eval_mode

aten = torch.ops.aten


def count_operations(operator: Any, args: tuple[Any, ...], result: Any) -> int:
    """Count the operations of one call; 0 if the operator neither convolves nor multiplies matrices."""
    count = _COUNTERS.get(operator.overloadpacket)
    return 0 if count is None else count(args, result)


def forward_flops(network: nn.Module, *inputs: Tensor) -> int:
    """Count the operations of a network's forward in evaluation mode, as torch does."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and a plan does without

    with FlopCounterMode(display=False) as counter, torch.no_grad(), eval_mode(network):
        network(*inputs)
    return int(counter.get_total_flops())


def _convolution(args: tuple[Any, ...], result: Any) -> int:
    weight, transposed = args[1], args[6]
    grid: Tensor = args[0] if transposed else result
    return 2 * _num_products(weight, grid)


def _convolution_backward(args: tuple[Any, ...], result: Any) -> int:  # noqa: ARG001
    """Count as many as forward has for each gradient that is computed (inputs, weight)."""
    grad_output, inputs, weight, transposed, output_mask = args[0], args[1], args[2], args[7], args[10]
    grid: Tensor = inputs if transposed else grad_output
    num_gradients = int(output_mask[0]) + int(output_mask[1])
    return num_gradients * 2 * _num_products(weight, grid)


def _num_products(weight: Tensor, grid: Tensor) -> int:
    """Return how often weights are multiplied: each once at every position of the grid (B, C, ...)."""
    return weight.numel() * grid.shape[0] * math.prod(grid.shape[2:])


def _matrix_product(first: int) -> Callable[[tuple[Any, ...], Any], int]:
    """Return the counter of a matrix product whose first matrix is argument `first`."""

    def count(args: tuple[Any, ...], result: Any) -> int:
        inner: int = args[first].shape[-1]
        size: int = result.numel()
        return 2 * inner * size

    return count


_COUNTERS: dict[Any, Callable[[tuple[Any, ...], Any], int]] = {
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten.mm: _matrix_product(0),
    aten.bmm: _matrix_product(0),
    aten.addmm: _matrix_product(1),
    aten.baddbmm: _matrix_product(1),
}
