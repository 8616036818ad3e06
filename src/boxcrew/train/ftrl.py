"""FTRL-Proximal, which torch does not have (McMahan et al., 2013, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Ftrl(Optimizer):
    """Keeps `z` (gradients seen, corrected for the moves they made) and `n` (their squares); the weight
    follows from both in closed form, exactly zero while |z| is below `l1`.
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
                    self._step_one(parameter, group)

    def _step_one(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["n"] = torch.full_like(parameter, group["initial_accumulator"])
            # z of the weights the run begins with: a step without gradient then leaves them as they are.
            state["z"] = -parameter * (state["n"].sqrt() / group["lr"] + group["weight_decay"])
        new_n = state["n"] + gradient.square()
        sigma = (new_n.sqrt() - state["n"].sqrt()) / group["lr"]
        state["z"].add_(gradient - sigma * parameter)
        state["n"].copy_(new_n)
        z, l1 = state["z"], group["l1"]
        curvature = new_n.sqrt() / group["lr"] + group["weight_decay"]
        parameter.copy_(torch.where(z.abs() <= l1, 0.0, -(z - z.sign() * l1) / curvature))
