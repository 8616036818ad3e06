"""Weights that are divided by their spectral norm, which keeps a critic smooth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrize

from boxcrew.core.torch_tools.tracked_weights import TrackedParametrization

POWER_ITERATIONS = 15  # to know a weight that is new, as many as torch makes


class SpectralNorm(TrackedParametrization):
    """Makes the greatest singular value of a weight (outputs, …) 1 (Miyato et al. 2018, equations 8 and 9).

    It is estimated by power iteration, a step each time that the estimate follows the weight. torch's own
    makes one in each forward instead, so what it gives depends on how a step is split. Buffers are named as
    torch's.
    """

    _u: Tensor  # (outputs,) where the longest output points
    _v: Tensor  # (inputs,) of which input it is; both are constants to the gradient

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        matrix = weight.detach().flatten(1)
        for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
            self.register_buffer(name, F.normalize(matrix.new_empty(size).normal_(), dim=0))
        for _ in range(POWER_ITERATIONS):
            self.track(weight)

    def forward(self, weight: Tensor) -> Tensor:
        # Not by products of matrices, which autocast would round.
        norm = (weight.flatten(1) * torch.outer(self._u, self._v)).sum()
        return weight / norm

    def track(self, weight: Tensor) -> None:
        """In this order: the norm is then a length, and never below 0, however far the weight has come since
        the last time.
        """
        matrix = weight.detach().flatten(1)
        self._u.copy_(F.normalize(matrix.mv(self._v), dim=0))
        self._v.copy_(F.normalize(self._u @ matrix, dim=0))


def add_spectral_norm(layer: nn.Conv2d | nn.Linear) -> None:
    """To its weight."""
    parametrize.register_parametrization(layer, "weight", SpectralNorm(layer.weight))
