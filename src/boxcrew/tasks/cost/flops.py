"""The number of operations of torch's operators: two for each multiplication with its addition.

torch counts them too, but for the backward of grouped convolutions as if there were no groups.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from boxcrew.nets.layers import eval_mode

aten = torch.ops.aten


def count_operations(operator: Any, args: tuple[Any, ...], result: Any) -> int:
    """Count the operations of one call; 0 if the operator neither convolves nor multiplies matrices."""
    match operator.overloadpacket:
        case aten.convolution:
            weight, transposed = args[1], args[6]
            return 2 * _num_products(weight, args[0] if transposed else result)
        case aten.convolution_backward:  # as many as forward for each gradient (of inputs and weight)
            grad_output, inputs, weight, transposed, output_mask = *args[:3], args[7], args[10]
            num_gradients = int(output_mask[0]) + int(output_mask[1])
            return num_gradients * 2 * _num_products(weight, inputs if transposed else grad_output)
        case aten.mm | aten.bmm:
            return 2 * int(args[0].shape[-1]) * int(result.numel())
        case aten.addmm | aten.baddbmm:
            return 2 * int(args[1].shape[-1]) * int(result.numel())
    return 0


def forward_flops(network: nn.Module, *inputs: Tensor) -> int:
    """Count the operations of a network's forward in evaluation mode, as torch does. Nothing is computed:
    some networks would take minutes.
    """
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and a plan does without

    without_data = copy.deepcopy(network).to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad(), eval_mode(without_data):
        without_data(*(value.to("meta") for value in inputs))
    return int(counter.get_total_flops())


def _num_products(weight: Tensor, grid: Tensor) -> int:
    """Return how often weights are multiplied: each once at every position of the grid (B, C, ...)."""
    return weight.numel() * grid.shape[0] * math.prod(grid.shape[2:])
