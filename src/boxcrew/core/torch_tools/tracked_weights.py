"""What is known of weights and has to follow them as they learn, such as how much they can lengthen an input.

Forward runs as often as a step has parts, and not on all processes alike: there it would depend on how a step
is split. So whoever runs a network lets it follow once in each phase of a step, before forward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList


class TrackedParametrization(nn.Module, ABC):
    """A parametrization (torch.nn.utils.parametrize) of one weight; what it knows of it is in its buffers."""

    @abstractmethod
    def track(self, weight: Tensor) -> None:
        """Towards what is true of the weight as it is now, in place."""


def _as_it_is(weight: Tensor) -> Tensor:
    return weight


@torch.no_grad()
def track_weights(module: nn.Module, whole: Callable[[Tensor], Tensor] = _as_it_is) -> None:
    """Of all layers inside. `whole` gives all of a weight of which there may be a part here only."""
    for weight in module.modules():
        if isinstance(weight, ParametrizationList):
            for part in weight:
                if isinstance(part, TrackedParametrization):
                    part.track(whole(weight.original))
