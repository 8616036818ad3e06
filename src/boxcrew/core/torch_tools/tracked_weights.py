"""Parametrizations whose buffers are tracked facts about a weight, such as its spectral norm.

They cannot be updated in forward, which runs once per micro-batch and not on all processes alike: the result
would depend on how a step is split. So whoever runs a network updates them once in each phase of a step,
before forward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList


class TrackedParametrization(nn.Module, ABC):
    """A parametrization (torch.nn.utils.parametrize) of one weight, with tracked facts in its buffers."""

    @abstractmethod
    def track(self, weight: Tensor) -> None:
        """Move the buffers towards the facts about the weight as it is now, in place."""


@torch.no_grad()
def track_weights(module: nn.Module, gather: Callable[[Tensor], Tensor] = lambda weight: weight) -> None:
    """Update all tracked parametrizations inside. `gather` returns the full weight of one that is sharded."""
    for weight, parametrization in _tracked(module):
        parametrization.track(gather(weight.original))


def tracked_buffers(module: nn.Module) -> list[Tensor]:
    """Return the buffers that `track_weights` updates."""
    return [buffer for _, parametrization in _tracked(module) for buffer in parametrization.buffers()]


def _tracked(module: nn.Module) -> Iterator[tuple[ParametrizationList, TrackedParametrization]]:
    for weight in module.modules():
        if isinstance(weight, ParametrizationList):
            for parametrization in weight:
                if isinstance(parametrization, TrackedParametrization):
                    yield weight, parametrization
