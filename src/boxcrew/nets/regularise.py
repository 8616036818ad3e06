"""What keeps networks from learning their examples by heart, and critics smooth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from boxcrew.nets.filling import Convolution, Transposed

_TINY = 1e-12


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016): in training a sample's branch is left out with probability `p`,
    and what stays is made larger, so that the mean is the same.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        assert 0 <= p < 1, p
        self.p = p

    def forward(self, branch: Tensor) -> Tensor:
        """(B, …)"""
        if self.p == 0 or not self.training:
            return branch
        keep = branch.new_empty((len(branch), *[1] * (branch.ndim - 1))).bernoulli_(1 - self.p)
        return branch * (keep / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def l1(parameters: Iterable[Tensor]) -> Tensor:
    """The sum of all absolute values, of one parameter or more. Of those that are divided among processes
    (DTensors) each has its part: all must ask at once, and all are given the sum over the whole.
    """
    whole: list[Tensor] = []
    parts: list[Tensor] = []
    group: object = None
    for parameter in parameters:
        if hasattr(parameter, "to_local"):
            parts.append(parameter.to_local().abs().sum())
            group = parameter.device_mesh.get_group()  # type: ignore[attr-defined]
        else:
            whole.append(parameter.abs().sum())
    if parts:
        whole.append(_OverAll.apply(torch.stack(parts).sum(), group))
    return torch.stack(whole).sum()


class _OverAll(torch.autograd.Function):
    """The sum over all processes of a group. Their losses are added up, so what comes back is added up too: a
    process would else have a gradient by its own samples alone, for parts that no other process has.
    """

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _added(part, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _added(gradient, ctx.group), None


def _added(part: Tensor, group: Any) -> Tensor:
    total = part.clone()
    torch.distributed.all_reduce(total, group=group)
    return total


@torch.no_grad()
def limit_norms_(module: nn.Module, max_norm: float) -> None:
    """Shortens the weights that come into a unit to `max_norm` where they are longer, in place; to be called
    after each step, while gradients are there: what has none has not learnt, and stays as it is (Srivastava
    et al. 2014, section 5.1). Weights under a spectral norm have their own limit.
    """
    for layer in module.modules():
        learnt = [p for p in layer.parameters(recurse=False) if p.ndim > 1 and p.grad is not None]
        if isinstance(layer, nn.Linear | Convolution | nn.RNNBase):
            for weight in learnt:
                _shorten(weight, max_norm, unit_dims=(0,))
        elif isinstance(layer, Transposed):
            for weight in learnt:
                groups = weight.view(layer.groups, -1, *weight.shape[1:])  # (groups, inputs, outputs, …)
                _shorten(groups, max_norm, unit_dims=(0, 2))


def _shorten(weights: Tensor, max_norm: float, *, unit_dims: tuple[int, ...]) -> None:
    """`unit_dims` tell the units apart; all else comes into them."""
    incoming = [dim for dim in range(weights.ndim) if dim not in unit_dims]
    norms = torch.linalg.vector_norm(weights, dim=incoming, keepdim=True)
    weights.mul_((max_norm / norms.clamp(min=_TINY)).clamp(max=1))


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, weights: Tensor
) -> Tensor:
    """The sum over samples of (length of the critic's gradient - 1)², each at a place between a real and a
    made picture (Gulrajani et al. 2017, equation 3, without lambda).
    `weights` (B,): the real one's part, 0..1.

    The critic must see each sample by itself: no BatchNorm.
    """
    parts = weights.reshape(-1, *[1] * (real.ndim - 1))
    between = (parts * real + (1 - parts) * fake).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    lengths = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
    penalty: Tensor = (lengths - 1).square().sum()
    return penalty
