"""FTRL-Proximal, which torch does not have (McMahan et al., 2013, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Ftrl(Optimizer):
    """FTRL-Proximal keeps `z` (the sum of gradients, corrected for the updates they made) and `n` (the sum of
    their squares). The weight follows from both in closed form and is exactly zero while |z| is below `l1`.
    `weight_decay` is the paper's l2.

    The paper's rate is fixed. Here it follows a schedule, so sigma is the change of the full curvature
    sqrt(n) / rate, not of sqrt(n) alone: otherwise weights would grow and shrink with the rate.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.1,
        *,
        l1: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator: float = 0.1,
    ) -> None:
        defaults = {
            "lr": lr,
            "l1": l1,
            "weight_decay": weight_decay,
            "initial_accumulator": initial_accumulator,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["n"] = torch.full_like(parameter, group["initial_accumulator"])
            state["rate"] = group["lr"]
            # The z of the initial weights: a step without gradient or decay leaves them unchanged.
            state["z"] = -parameter * state["n"].sqrt() / group["lr"]
        before = state["n"].sqrt() / state["rate"]
        state["n"].add_(gradient.square())
        state["rate"] = group["lr"]
        curvature = state["n"].sqrt() / group["lr"]
        state["z"].add_(gradient - (curvature - before) * parameter)
        z, l1 = state["z"], group["l1"]
        moved = -(z - z.sign() * l1) / (curvature + group["weight_decay"])
        parameter.copy_(torch.where(z.abs() <= l1, 0.0, moved))
