"""Losses for scores that say how good a box is, and for distances that are distributions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

ALPHA, GAMMA = 0.75, 2.0
"""Weight and power of negatives (Zhang et al. 2021, section 4.1)."""

_CERTAIN = -1e-6  # the largest logarithm of a score: 1 - score must not be 0
_INSIDE = 0.01  # how far a distance stays below the last bin


def varifocal(log_scores: Tensor, wanted: Tensor) -> Tensor:
    """Return the varifocal loss of each score (Zhang et al. 2021, equation 2), of the shape of `log_scores`.

    `log_scores` are logarithms of scores in 0..1; `wanted` is the quality to be learned, 0 for negatives.
    Positives weigh their quality; a negative weighs little unless its score is high.
    """
    log_scores = log_scores.clamp(max=_CERTAIN)
    log_rest = torch.log(-torch.expm1(log_scores))
    positive = -wanted * (wanted * log_scores + (1 - wanted) * log_rest)
    negative = -ALPHA * torch.exp(GAMMA * log_scores) * log_rest
    return torch.where(wanted > 0, positive, negative)


def expected_distance(bins: Tensor) -> Tensor:
    """Return the mean (…,) of the distributions over distances 0, 1, 2, … whose scores are bins (…, N)."""
    distances = torch.arange(bins.shape[-1], device=bins.device, dtype=bins.dtype)
    return (bins.softmax(dim=-1) * distances).sum(dim=-1)


def distribution_focal(bins: Tensor, wanted: Tensor) -> Tensor:
    """Return the distribution focal loss (…,) of distances (Li et al. 2020, equation 6).

    `bins` (…, N) are scores of the distances 0, 1, 2, …, and `wanted` (…,) are distances; the two bins
    beside a distance learn it, the nearer one more. Distances outside of the bins count as the outermost.
    """
    wanted = wanted.clamp(min=0, max=bins.shape[-1] - 1 - _INSIDE)
    left = wanted.floor()
    log_shares = F.log_softmax(bins, dim=-1)
    index = left.long()[..., None]
    at_left, at_right = (log_shares.gather(-1, index + i).squeeze(-1) for i in (0, 1))
    return -((left + 1 - wanted) * at_left + (wanted - left) * at_right)
