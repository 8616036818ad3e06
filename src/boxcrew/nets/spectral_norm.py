"""Spectral normalization: weights divided by their spectral norm, which keeps a critic smooth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrize

from boxcrew.core.torch_tools.tracked_weights import TrackedParametrization

POWER_ITERATIONS = 15  # for a new weight, as many as torch makes


class SpectralNorm(TrackedParametrization):
    """Scales a weight (outputs, …) to a greatest singular value of 1 (Miyato et al. 2018, equations 8 and 9).

    That value is estimated by one power iteration in each call of `track`. torch's own version iterates in
    each forward, so that its result depends on how a step is split. Buffers have torch's names.
    """

    _u: Tensor  # (outputs,) left singular vector
    _v: Tensor  # (inputs,) right singular vector; both are constants to the gradient

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        matrix = weight.detach().flatten(1)
        for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
            self.register_buffer(name, F.normalize(matrix.new_empty(size).normal_(), dim=0))
        for _ in range(POWER_ITERATIONS):
            self.track(weight)

    def forward(self, weight: Tensor) -> Tensor:
        # Not by matrix products, which autocast would round.
        norm = (weight.flatten(1) * torch.outer(self._u, self._v)).sum()
        return weight / norm

    def track(self, weight: Tensor) -> None:
        """Update the singular vectors; in this order the norm is never negative, however old they were."""
        matrix = weight.detach().flatten(1)
        self._u.copy_(F.normalize(matrix.mv(self._v), dim=0))
        self._v.copy_(F.normalize(self._u @ matrix, dim=0))


def add_spectral_norm(layer: nn.Conv2d | nn.Linear) -> None:
    """Divide the layer's weight by its spectral norm in each forward."""
    parametrize.register_parametrization(layer, "weight", SpectralNorm(layer.weight))
