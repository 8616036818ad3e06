from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from boxcrew.nets.dcgan import critic_loss, generator_loss

KINDS: list[Any] = ["standard", "hinge", "wasserstein"]


def test_the_standard_loss_is_the_cross_entropy_of_real_and_made() -> None:
    real, fake = torch.tensor([0.0, 2.0]), torch.tensor([-1.0, 3.0])
    chances = real.sigmoid().log().sum() + (1 - fake.sigmoid()).log().sum()
    torch.testing.assert_close(critic_loss("standard", real, fake), -chances)
    torch.testing.assert_close(generator_loss("standard", fake), -fake.sigmoid().log().sum())


def test_the_hinge_asks_no_more_than_a_margin() -> None:
    assert critic_loss("hinge", torch.tensor([1.0, 9.0]), torch.tensor([-1.0, -9.0])) == 0
    assert critic_loss("hinge", torch.tensor([0.0, 9.0]), torch.tensor([0.5, -9.0])) == 2.5


def test_wasserstein_is_a_difference() -> None:
    assert critic_loss("wasserstein", torch.tensor([1.0, 9.0]), torch.tensor([-1.0, 2.0])) == -9


@pytest.mark.parametrize("kind", KINDS)
def test_losses_of_parts_add_up(kind: Any) -> None:
    real, fake = torch.randn(2, 10)
    parts = critic_loss(kind, real[:3], fake[:3]) + critic_loss(kind, real[3:], fake[3:])
    torch.testing.assert_close(critic_loss(kind, real, fake), parts)
    parts = generator_loss(kind, fake[:3]) + generator_loss(kind, fake[3:])
    torch.testing.assert_close(generator_loss(kind, fake), parts)


@pytest.mark.parametrize("kind", KINDS)
def test_critic_and_generator_pull_in_opposite_directions(kind: Any) -> None:
    real, fake = torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    on_real, on_fake = torch.autograd.grad(critic_loss(kind, real, fake), (real, fake))
    (on_generator,) = torch.autograd.grad(generator_loss(kind, fake), fake)
    assert (on_real < 0).all()
    assert (on_fake > 0).all()
    assert (on_generator < 0).all()


def test_the_generator_learns_from_a_critic_that_is_sure() -> None:
    fake = torch.tensor([-50.0], requires_grad=True)
    generator_loss("standard", fake).backward()  # type: ignore[no-untyped-call]
    assert fake.grad is not None
    assert fake.grad.item() == pytest.approx(-1)
    assert math.isfinite(float(critic_loss("standard", torch.tensor([1e4]), torch.tensor([1e4]))))
