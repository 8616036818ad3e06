"""Losses of classifiers. Each returns a sum over samples and the weight to divide it by.

`scores` (…, C) are before softmax, `labels` (…) int64. `sample_weights` (…) in 0..1 say how much each label
counts; by default 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Summed = tuple[Tensor, Tensor]
"""A sum and its weight, both scalar tensors."""


def cross_entropy(
    scores: Tensor,
    labels: Tensor,
    sample_weights: Tensor | None = None,
    *,
    smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> Summed:
    """Return the cross entropy.

    `smoothing` is the part of a label that is distributed over all classes (Szegedy et al. 2016, section 7).
    `class_weights` (C,) scale the samples of each class, in the weight too.
    """
    losses = F.cross_entropy(
        scores.float().flatten(0, -2),
        labels.flatten(),
        weight=class_weights,
        reduction="none",
        label_smoothing=smoothing,
    )
    return _summed(losses.reshape_as(labels), labels, sample_weights, class_weights)


def focal_loss(
    scores: Tensor,
    labels: Tensor,
    sample_weights: Tensor | None = None,
    *,
    gamma: float,
    class_weights: Tensor | None = None,
) -> Summed:
    """Return the focal loss: samples that are classified well count less (Lin et al. 2017, equation 5)."""
    losses = F.cross_entropy(scores.float().flatten(0, -2), labels.flatten(), reduction="none")
    # 1 - p of the true class; never exactly 0, where a power has no slope.
    error = -torch.expm1(-losses.clamp(min=torch.finfo(losses.dtype).tiny))
    focused = (error**gamma * losses).reshape_as(labels)
    if class_weights is not None:
        focused = focused * class_weights[labels]
    return _summed(focused, labels, sample_weights, class_weights)


def mixed_loss(loss: Callable[[Tensor, Tensor], Summed], targets: Mapping[str, Tensor]) -> Summed:
    """Return the loss of mixed samples, each made of two (`data/transforms/mixing.py`).
    `loss` takes labels and their weights, and is computed for the first and the second label of each sample.
    """
    mix_weights = targets["mix_weights"]
    first_sum, first_weight = loss(targets["labels"], mix_weights)
    other_sum, other_weight = loss(targets["other_labels"], 1 - mix_weights)
    return first_sum + other_sum, first_weight + other_weight


def _summed(
    losses: Tensor, labels: Tensor, sample_weights: Tensor | None, class_weights: Tensor | None
) -> Summed:
    weights = torch.ones_like(losses) if class_weights is None else class_weights[labels]
    if sample_weights is not None:
        losses, weights = losses * sample_weights, weights * sample_weights
    return losses.sum(), weights.sum()
