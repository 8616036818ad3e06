"""BatchNorm for the networks here: like torch's, but whoever runs a network can replace the computation."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import handle_torch_function, has_torch_function_unary


def is_batch_norm(module: nn.Module) -> bool:
    """Return whether a layer is one of torch's BatchNorms, of any number of dimensions."""
    return isinstance(module, _BatchNorm)


def batch_norm(
    input: Tensor,  # named and ordered as torch's
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,  # noqa: FBT001
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalize as torch does; channels with a single value use the running statistics."""
    if has_torch_function_unary(input):
        values = (input, running_mean, running_var, weight, bias, training, momentum, eps)
        normed: Tensor = handle_torch_function(batch_norm, (input,), *values)
        return normed
    training = training and input.numel() != input.shape[1]
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
