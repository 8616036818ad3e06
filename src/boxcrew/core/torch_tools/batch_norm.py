"""BatchNorm as networks here call it: like torch's, but who runs a network may put another in its place."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary


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
    """A single value has no deviation: where a channel has no more, the running statistics normalise it."""
    if has_torch_function_unary(input):
        values = (input, running_mean, running_var, weight, bias, training, momentum, eps)
        found: Tensor = handle_torch_function(batch_norm, (input,), *values)
        return found
    single = input.numel() == input.shape[1]
    return F.batch_norm(
        input, running_mean, running_var, weight, bias, training and not single, momentum, eps
    )
