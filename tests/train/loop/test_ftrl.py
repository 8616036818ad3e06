"""FTRL-Proximal against a slow copy of the paper's algorithm, number by number."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from boxcrew.train.loop.ftrl import Ftrl


@dataclass
class PaperCoordinate:
    """Algorithm 1 for one weight, with beta = 0 and a start in `n`; z begins so that the weight does."""

    weight: float
    rate: float
    l1: float
    l2: float
    n: float = 0.1
    z: float = field(init=False)

    def __post_init__(self) -> None:
        self.z = -self.weight * math.sqrt(self.n) / self.rate

    def step(self, gradient: float) -> float:
        sigma = (math.sqrt(self.n + gradient**2) - math.sqrt(self.n)) / self.rate
        self.z += gradient - sigma * self.weight
        self.n += gradient**2
        if abs(self.z) <= self.l1:
            self.weight = 0.0
        else:
            sign = math.copysign(1, self.z)
            self.weight = -(self.z - sign * self.l1) / (math.sqrt(self.n) / self.rate + self.l2)
        return self.weight


def parameter(values: list[float]) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def step(optimizer: Ftrl, weights: nn.Parameter, gradient: Tensor) -> None:
    weights.grad = gradient.to(weights.dtype)
    optimizer.step()


numbers = st.floats(-3, 3, allow_nan=False)


@given(
    start=st.lists(numbers, min_size=1, max_size=4),
    gradients=st.lists(numbers, min_size=1, max_size=8),
    rate=st.floats(0.01, 2),
    l1=st.sampled_from([0.0, 0.5, 2.0]),
    l2=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_agrees_with_the_paper(
    start: list[float], gradients: list[float], rate: float, l1: float, l2: float
) -> None:
    weights = parameter(start)
    optimizer = Ftrl([weights], lr=rate, l1=l1, weight_decay=l2)
    paper = [PaperCoordinate(weight=w, rate=rate, l1=l1, l2=l2) for w in start]
    for shift, gradient in enumerate(gradients):
        each = torch.tensor([gradient * (1 + (i + shift) % 3) for i in range(len(start))])
        step(optimizer, weights, each)
        expected = [coordinate.step(float(g)) for coordinate, g in zip(paper, each, strict=True)]
        torch.testing.assert_close(weights.tolist(), expected, rtol=1e-6, atol=1e-6)


def test_l1_makes_exact_zeros_of_what_does_not_help() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(200, 6, dtype=torch.float64)
    truth = torch.tensor([2.0, -3.0, 0, 0, 0, 0], dtype=torch.float64)
    weights = parameter([0.0] * 6)
    optimizer = Ftrl([weights], lr=0.5, l1=20.0)
    for _ in range(200):
        weights.grad = None
        loss: Tensor = (inputs @ weights - inputs @ truth).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (weights[2:] == 0).all()
    assert (weights[:2].abs() > 1).all()


def test_a_changing_rate_alone_moves_nothing() -> None:
    weights = parameter([1.5, -0.5])
    optimizer = Ftrl([weights], lr=0.1)
    step(optimizer, weights, torch.tensor([0.3, 0.0]))
    before = weights.detach().clone()
    for rate in (0.2, 1.0, 0.01):
        optimizer.param_groups[0]["lr"] = rate
        step(optimizer, weights, torch.zeros(2))
        torch.testing.assert_close(weights.detach(), before)


def test_steps_follow_the_gradient_downhill_under_a_schedule() -> None:
    weights = parameter([5.0])
    optimizer = Ftrl([weights], lr=0.01)
    for i in range(100):
        optimizer.param_groups[0]["lr"] = 0.01 * (i + 1) if i < 50 else 0.01 * (100 - i)
        before = abs(weights.item())
        step(optimizer, weights, weights.detach())  # of half the square
        assert abs(weights.item()) <= before
    assert abs(weights.item()) < 2.5
