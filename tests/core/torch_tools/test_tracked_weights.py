"""Tracked parametrizations are updated by the full weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from boxcrew.core.torch_tools.tracked_weights import TrackedParametrization, track_weights


class Largest(TrackedParametrization):
    """Tracks the greatest number in a weight."""

    known: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("known", torch.zeros(()))

    def forward(self, weight: Tensor) -> Tensor:
        return weight

    def track(self, weight: Tensor) -> None:
        self.known.copy_(weight.max())


class Plain(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight


def test_all_tracked_parametrizations_are_updated_by_the_gathered_weight() -> None:
    layers = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1)), nn.Linear(1, 1))
    first, second = Largest(), Largest()
    parametrize.register_parametrization(layers[0], "weight", first)
    parametrize.register_parametrization(layers.get_submodule("1.0"), "weight", second)
    parametrize.register_parametrization(layers[2], "weight", Plain())
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.fill_(3)
    track_weights(layers)
    assert (float(first.known), float(second.known)) == (3, 3)
    track_weights(layers, lambda weight: weight + 1)
    assert (float(first.known), float(second.known)) == (4, 4)
