"""Losses of qualities and of distributions, against slow loops."""

from __future__ import annotations

import math

import pytest
import torch

from boxcrew.nets.quality_losses import distribution_focal, expected_distance, varifocal


def test_varifocal_is_the_papers_formula() -> None:
    draw = torch.Generator().manual_seed(0)
    scores = torch.rand(4, 6, generator=draw, dtype=torch.float64)
    wanted = torch.rand(4, 6, generator=draw, dtype=torch.float64) * (scores > 0.4)
    losses = varifocal(scores.log(), wanted)
    numbers = (values.flatten().tolist() for values in (scores, wanted, losses))
    for p, q, loss in zip(*numbers, strict=True):
        if q > 0:
            by_hand = -q * (q * math.log(p) + (1 - q) * math.log(1 - p))
        else:
            by_hand = -0.75 * p**2 * math.log(1 - p)
        assert loss == pytest.approx(by_hand, rel=1e-9)


def test_varifocal_stays_finite_for_certain_scores() -> None:
    scores = torch.tensor([-200.0, -50.0, -1e-9, 0.0], requires_grad=True)
    for wanted in (0.0, 0.3, 1.0):
        loss = varifocal(scores, torch.full((4,), wanted)).sum()
        assert loss.isfinite()
        assert torch.autograd.grad(loss, scores)[0].isfinite().all()


def test_a_positive_is_learned_best_at_its_quality() -> None:
    scores = torch.linspace(0.01, 0.99, 99)
    assert float(scores[varifocal(scores.log(), torch.tensor(0.4)).argmin()]) == pytest.approx(0.4)


def test_the_loss_of_distributions_is_the_papers_formula() -> None:
    draw = torch.Generator().manual_seed(1)
    bins = torch.randn(3, 4, 8, generator=draw, dtype=torch.float64)
    wanted = torch.rand(3, 4, generator=draw, dtype=torch.float64) * 6.9
    losses = distribution_focal(bins, wanted)
    for row in range(3):
        for side in range(4):
            shares = [math.exp(float(x)) for x in bins[row, side]]
            shares = [share / sum(shares) for share in shares]
            y = float(wanted[row, side])
            i = int(y)
            by_hand = -((i + 1 - y) * math.log(shares[i]) + (y - i) * math.log(shares[i + 1]))
            assert float(losses[row, side]) == pytest.approx(by_hand, rel=1e-9)
            mean = sum(distance * share for distance, share in enumerate(shares))
            assert float(expected_distance(bins)[row, side]) == pytest.approx(mean, rel=1e-9)


def test_distances_outside_of_the_bins_count_as_the_outermost() -> None:
    bins = torch.randn(8, generator=torch.Generator().manual_seed(2)).expand(4, 8)
    near, negative, far, farther = distribution_focal(bins, torch.tensor([0.0, -3.0, 6.99, 80.0]))
    torch.testing.assert_close(near, negative)
    torch.testing.assert_close(far, farther)


def test_descent_of_the_loss_gives_the_wanted_distance() -> None:
    bins = torch.zeros(1, 8, requires_grad=True)
    optimizer = torch.optim.Adam([bins], lr=0.2)
    for _ in range(300):
        optimizer.zero_grad()
        loss = distribution_focal(bins, torch.tensor([4.3])).sum()
        bins.grad = torch.autograd.grad(loss, bins)[0]
        optimizer.step()
    assert float(expected_distance(bins.detach())) == pytest.approx(4.3, abs=0.05)
