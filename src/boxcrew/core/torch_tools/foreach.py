"""Operations on lists of tensors in one call, as torch's optimizers do them: all in place but `norms_of`."""

from __future__ import annotations

import torch
from torch import Tensor

Tensors = list[Tensor] | tuple[Tensor, ...]


def copy_all(targets: Tensors, sources: Tensors) -> None:
    """Copy each source into the target at the same position; empty lists are fine."""
    if targets:
        torch._foreach_copy_(targets, sources)


def multiply_all(tensors: Tensors, factor: float | Tensor) -> None:
    """Multiply every tensor by one number. The list must not be empty."""
    torch._foreach_mul_(tensors, factor)


def divide_all(tensors: Tensors, divisor: Tensor) -> None:
    """Divide every tensor by one scalar tensor. The list must not be empty."""
    torch._foreach_div_(tensors, divisor)


def lerp_all(tensors: Tensors, ends: Tensors, weight: float) -> None:
    """Move every tensor towards its end by `weight` (0..1) of the way. The lists must not be empty."""
    torch._foreach_lerp_(tensors, ends, weight)


def norms_of(tensors: Tensors) -> tuple[Tensor, ...]:
    """Return the Euclidean norm of every tensor, as scalars. The list must not be empty."""
    return torch._foreach_norm(tensors)
