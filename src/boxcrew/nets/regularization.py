"""Regularization: L1, max-norm, and the gradient penalty of critics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from boxcrew.nets.initialization import Convolution, Transposed


def l1(parameters: Iterable[Tensor]) -> Tensor:
    """Return the sum of the absolute values of one or more parameters.
    Collective if parameters are sharded (DTensors): all processes must call it, and all get the full sum.
    """
    full: list[Tensor] = []
    shards: list[Tensor] = []
    group: object = None
    for parameter in parameters:
        if hasattr(parameter, "to_local"):
            shards.append(parameter.to_local().abs().sum())
            group = parameter.device_mesh.get_group()  # type: ignore[attr-defined]
        else:
            full.append(parameter.abs().sum())
    if shards:
        full.append(_AllReduceSum.apply(torch.stack(shards).sum(), group))
    return torch.stack(full).sum()


class _AllReduceSum(torch.autograd.Function):
    """The sum over all processes of a group.

    Gradients are summed too, because the losses of all processes are: otherwise the gradient of a shard would
    come from the samples of its own process alone.
    """

    @staticmethod
    def forward(ctx: Any, shard: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _all_reduced(shard, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all_reduced(gradient, ctx.group), None


def _all_reduced(value: Tensor, group: Any) -> Tensor:
    total = value.clone()
    torch.distributed.all_reduce(total, group=group)
    return total


@torch.no_grad()
def limit_norms_(module: nn.Module, max_norm: float) -> None:
    """Limit the norm of the weights into each unit to `max_norm`, in place (Srivastava et al. 2014, 5.1).

    To be called after each step while gradients exist: parameters without one stay as they are. Weights under
    a spectral norm have their own limit.
    """
    for layer in module.modules():
        trained = [p for p in layer.parameters(recurse=False) if p.ndim > 1 and p.grad is not None]
        if isinstance(layer, nn.Linear | Convolution | nn.RNNBase):
            for weight in trained:
                _shorten(weight, max_norm, unit_dims=(0,))
        elif isinstance(layer, Transposed):
            for weight in trained:
                groups = weight.view(layer.groups, -1, *weight.shape[1:])  # (groups, inputs, outputs, …)
                _shorten(groups, max_norm, unit_dims=(0, 2))


def _shorten(weights: Tensor, max_norm: float, *, unit_dims: tuple[int, ...]) -> None:
    """Limit norms over all dimensions but `unit_dims`, which index the units."""
    incoming = [dim for dim in range(weights.ndim) if dim not in unit_dims]
    norms = torch.linalg.vector_norm(weights, dim=incoming, keepdim=True)
    weights.mul_((max_norm / norms.clamp(min=1e-12)).clamp(max=1))


def gradient_penalty(
    critic: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, weights: Tensor
) -> Tensor:
    """Return the sum over samples of (norm of the critic's gradient - 1)², at points between real and fake.

    `weights` (B,) in 0..1 are the shares of the real images in these points (Gulrajani et al. 2017, equation
    3, without lambda). The critic must score each sample by itself: no BatchNorm.
    """
    shares = weights.reshape(-1, *[1] * (real.ndim - 1))
    between = (shares * real + (1 - shares) * fake).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norms = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
    penalty: Tensor = (norms - 1).square().sum()
    return penalty
