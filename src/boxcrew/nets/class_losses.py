"""Losses of networks that tell classes apart. Each gives a sum over the samples and the weight to divide it
by (`core/types.py`, Losses).

`scores` (…, C) are before softmax, `labels` (…) int64. `shares` (…), 0..1: how much each label counts, all of
them whole if not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Summed = tuple[Tensor, Tensor]
"""A sum and its weight, both scalar."""


def cross_entropy(
    scores: Tensor,
    labels: Tensor,
    shares: Tensor | None = None,
    *,
    smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> Summed:
    """`smoothing`: how much of each label is spread over all classes (Szegedy et al. 2016, section 7).
    `class_weights` (C,): how much a sample of each counts, in the weight too.
    """
    losses = F.cross_entropy(
        scores.float().flatten(0, -2),
        labels.flatten(),
        weight=class_weights,
        reduction="none",
        label_smoothing=smoothing,
    )
    return _summed(losses.reshape_as(labels), labels, shares, class_weights)


def focal_loss(
    scores: Tensor,
    labels: Tensor,
    shares: Tensor | None = None,
    *,
    gamma: float,
    class_weights: Tensor | None = None,
) -> Summed:
    """Cross entropy in which samples that are sure already count less (Lin et al. 2017, equation 5)."""
    losses = F.cross_entropy(scores.float().flatten(0, -2), labels.flatten(), reduction="none")
    # 1 - p of the true class; never exactly 0, where a power has no slope.
    doubts = -torch.expm1(-losses.clamp(min=torch.finfo(losses.dtype).tiny))
    focused = (doubts**gamma * losses).reshape_as(labels)
    if class_weights is not None:
        focused = focused * class_weights[labels]
    return _summed(focused, labels, shares, class_weights)


def mixed_loss(loss: Callable[[Tensor, Tensor], Summed], targets: Mapping[str, Tensor]) -> Summed:
    """Of samples made of two each (`data/transforms/mixing.py`): `loss`, of labels and shares, of the one
    label and of the other.
    """
    share = targets["share"]
    first_sum, first_weight = loss(targets["labels"], share)
    other_sum, other_weight = loss(targets["other_labels"], 1 - share)
    return first_sum + other_sum, first_weight + other_weight


def _summed(losses: Tensor, labels: Tensor, shares: Tensor | None, class_weights: Tensor | None) -> Summed:
    weights = torch.ones_like(losses) if class_weights is None else class_weights[labels]
    if shares is not None:
        losses, weights = losses * shares, weights * shares
    return losses.sum(), weights.sum()
