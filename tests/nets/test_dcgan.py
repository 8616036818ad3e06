from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from boxcrew.core.errors import UsageError
from boxcrew.core.torch_tools.tracked_weights import track_weights
from boxcrew.nets.dcgan import Critic, GeneratorNet


@pytest.mark.parametrize("size", [28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_made_and_judged(size: int, channels: int) -> None:
    made = GeneratorNet(10, channels, size, width=4)(100 * torch.randn(5, 10))
    assert made.shape == (5, channels, size, size)
    assert made.abs().max() <= 1
    assert Critic(channels, size, width=4)(made).shape == (5,)


def test_maps_grow_twice_as_deep_where_they_are_half_as_large() -> None:
    shapes = []
    critic = Critic(3, 64, width=4)
    for layer in critic.layers:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda *arguments: shapes.append(tuple(arguments[2].shape[1:])))
    critic(torch.randn(1, 3, 64, 64))
    assert shapes == [(4, 32, 32), (8, 16, 16), (16, 8, 8), (32, 4, 4)]


@pytest.mark.parametrize("size", [0, 7, 30, 128])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"size={size}"):
        GeneratorNet(10, 1, size)
    with pytest.raises(UsageError, match=f"size={size}"):
        Critic(1, size)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_a_critic_judges_each_picture_by_itself(norm: Any) -> None:
    critic = Critic(1, 28, width=4, norm=norm)
    pictures = torch.randn(6, 1, 28, 28)
    alone = torch.cat([critic(picture[None]) for picture in pictures])
    torch.testing.assert_close(critic(pictures), alone)


def test_unless_it_has_batch_norm() -> None:
    critic = Critic(1, 28, width=4, norm="batch")
    pictures = torch.randn(6, 1, 28, 28)
    assert not torch.allclose(critic(pictures)[:3], critic(pictures[:3]))


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_norms_are_on_all_maps_but_the_first(norm: Any) -> None:
    critic = Critic(1, 64, width=4, norm=norm)
    kinds = {"none": (), "layer": (nn.GroupNorm,), "batch": (nn.BatchNorm2d,)}[norm]
    norms = [isinstance(layer, kinds) for layer in critic.layers]
    assert sum(norms) == (0 if norm == "none" else 3)
    assert isinstance(critic.layers[1], nn.LeakyReLU)


def test_a_spectral_norm_limits_the_slope() -> None:
    torch.manual_seed(0)
    free, limited = Critic(1, 28, width=16), Critic(1, 28, width=16, spectral_norm=True)
    for critic in (free, limited):
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.mul_(10)
    for _ in range(20):  # the norms are found step by step
        track_weights(limited)
    layers = [layer for layer in limited.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) == 3
    for layer in layers:
        assert float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), ord=2)) == pytest.approx(
            1, rel=0.05
        )
    first, second = torch.randn(2, 50, 1, 28, 28)
    distances = (first - second).flatten(1).norm(dim=1)
    with torch.no_grad():
        steepest = [((critic(first) - critic(second)).abs() / distances).max() for critic in (free, limited)]
    assert steepest[1] < 4 < steepest[0]


def test_the_generator_normalizes_by_the_batch() -> None:
    generator = GeneratorNet(10, 1, 28, width=4)
    latent = torch.randn(8, 10)
    assert not torch.allclose(generator(latent)[:3], generator(latent[:3]))
    generator.eval()
    torch.testing.assert_close(generator(latent)[:3], generator(latent[:3]))
