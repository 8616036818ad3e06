"""Losses of a generator and its critic, as sums over the samples."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

GanLoss = Literal["standard", "hinge", "wasserstein"]


def critic_loss(kind: GanLoss, real_scores: Tensor, fake_scores: Tensor) -> Tensor:
    """Return the critic's loss from its scores (B,) of real and of generated images.

    standard: Goodfellow et al. 2014, equation 1; hinge: Miyato et al. 2018, equation 16; wasserstein:
    Arjovsky et al. 2017, equation 3, which needs a bound on the critic's slope, such as a gradient penalty.
    """
    if kind == "standard":
        return F.softplus(-real_scores).sum() + F.softplus(fake_scores).sum()
    if kind == "hinge":
        return F.relu(1 - real_scores).sum() + F.relu(1 + fake_scores).sum()
    return fake_scores.sum() - real_scores.sum()


def generator_loss(kind: GanLoss, fake_scores: Tensor) -> Tensor:
    """Return the generator's loss from the critic's scores (B,) of generated images.
    "standard" is the non-saturating loss of Goodfellow et al. 2014, section 3.
    """
    if kind == "standard":
        return F.softplus(-fake_scores).sum()
    return -fake_scores.sum()
