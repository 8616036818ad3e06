"""Adapt the sizes of default boxes, and the stride of the finest map, to the objects of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from boxcrew.nets.anchors import Level, best_ious

SMALLEST_AT = (0.01, 0.05, 0.1, 0.2)  # quantiles of object sizes, tried for the smallest default box
LARGEST_AT = (0.6, 0.7, 0.8, 0.9, 0.97)  # the same for the largest
MIN_SPAN = 1.3  # least ratio of the largest default box to the smallest
TOLERANCE = 0.02  # share of objects that may be lost for the sake of a coarser finest map
_MAX_OBJECTS = 300  # that layouts are scored on, taken evenly from all

MakeLevels = Callable[["AnchorLayout"], Sequence[Level]]


@dataclass(frozen=True, kw_only=True)
class AnchorLayout:
    """The stride of the finest map, and the range of default box sizes as shares of the input side."""

    finest_stride: int
    min_scale: float
    max_scale: float


@dataclass(frozen=True, kw_only=True)
class ScoredLayout:
    layout: AnchorLayout
    matched: float  # share of the objects that some default box overlaps enough
    mean_iou: float  # mean of the best overlaps


def adapt_layout(
    objects: Tensor, candidates: Iterable[AnchorLayout], levels: MakeLevels, *, threshold: float
) -> ScoredLayout:
    """Return the layout that matches most of the objects, (N, 4) xyxy as shares of the input, N > 0.

    Differences below a hundredth count as ties, which the mean overlap breaks. Among finest strides the
    coarsest that is nearly as good wins: it has a quarter of the cells.
    """
    sample = objects[:: -(-len(objects) // _MAX_OBJECTS)]
    scored = [_score(sample, layout, levels, threshold=threshold) for layout in candidates]
    best_of = {
        stride: max((score for score in scored if score.layout.finest_stride == stride), key=_sort_key)
        for stride in sorted({score.layout.finest_stride for score in scored}, reverse=True)
    }
    most = max(score.matched for score in best_of.values())
    return next(score for score in best_of.values() if score.matched >= most - TOLERANCE)


def anchor_layouts(
    objects: Tensor,
    *,
    strides: Sequence[int],
    min_scale: float | None = None,
    max_scale: float | None = None,
) -> list[AnchorLayout]:
    """Return candidate layouts for objects (N, 4), xyxy as shares of the input.
    A scale that is None is tried at several quantiles of the objects' sizes.
    """
    sizes = (objects[:, 2:] - objects[:, :2]).clamp(min=1e-3).prod(dim=1).sqrt()
    pairs: set[tuple[float, float]] = set()
    for low, high in product(_quantiles(sizes, SMALLEST_AT), _quantiles(sizes, LARGEST_AT)):
        # Even if all objects have one size, default boxes should be a little smaller and larger.
        smallest = min_scale or round(min(low, (max_scale or high) / MIN_SPAN), 4)
        pairs.add((smallest, max_scale or round(min(1.0, max(high, smallest * MIN_SPAN)), 4)))
    return [
        AnchorLayout(finest_stride=stride, min_scale=low, max_scale=high)
        for stride in strides
        for low, high in sorted(pairs)
    ]


def _quantiles(values: Tensor, at: Sequence[float]) -> list[float]:
    return [float(value) for value in torch.quantile(values, torch.tensor(at)).clamp(0.01, 0.95)]


def _score(objects: Tensor, layout: AnchorLayout, levels: MakeLevels, *, threshold: float) -> ScoredLayout:
    best = best_ious(objects, levels(layout))
    return ScoredLayout(
        layout=layout,
        matched=float((best >= threshold).float().mean()),
        mean_iou=float(best.mean()),
    )


def _sort_key(score: ScoredLayout) -> tuple[float, float]:
    return round(score.matched, 2), score.mean_iou
