"""Default boxes that suit the objects at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from boxcrew.nets.anchors import Level, best_overlaps

SMALLEST_AT = (0.01, 0.05, 0.1, 0.2)  # quantiles of the objects' sizes that the smallest default box may have
LARGEST_AT = (0.6, 0.7, 0.8, 0.9, 0.97)
SPREAD = 1.3  # the largest default box is at least so many times the smallest
ENOUGH = 0.02  # a coarser first map is chosen if it loses no more of the objects than this share
_MAX_OBJECTS = 300  # looked at; evenly from among all

MakeLevels = Callable[["AnchorLayout"], Sequence[Level]]


@dataclass(frozen=True, kw_only=True)
class AnchorLayout:
    """What is chosen: the stride of the finest map, and sizes of default boxes as shares of the input."""

    finest_stride: int
    min_scale: float
    max_scale: float


@dataclass(frozen=True, kw_only=True)
class AnchorFit:
    layout: AnchorLayout
    matched: float  # share of the objects that some default box overlaps enough
    overlap: float  # mean of the best overlaps


def fit_layout(
    objects: Tensor, candidates: Iterable[AnchorLayout], levels: MakeLevels, *, threshold: float
) -> AnchorFit:
    """The layout whose default boxes match most of the objects, (N, 4) xyxy as shares of the input, N > 0.

    Ties, and what differs by less than a hundredth, are settled by the mean overlap. Among finest strides the
    coarsest that is nearly as good wins: it has a quarter of the cells.
    """
    some = objects[:: -(-len(objects) // _MAX_OBJECTS)]
    fits = [_fit(some, layout, levels, threshold=threshold) for layout in candidates]
    best_of = {
        stride: max((fit for fit in fits if fit.layout.finest_stride == stride), key=_goodness)
        for stride in sorted({fit.layout.finest_stride for fit in fits}, reverse=True)
    }
    most = max(fit.matched for fit in best_of.values())
    return next(fit for fit in best_of.values() if fit.matched >= most - ENOUGH)


def anchor_layouts(
    objects: Tensor,
    *,
    strides: Sequence[int],
    min_scale: float | None = None,
    max_scale: float | None = None,
) -> list[AnchorLayout]:
    """Candidates for objects (N, 4) xyxy as shares of the input; None: at quantiles of their sizes."""
    sizes = (objects[:, 2:] - objects[:, :2]).clamp(min=1e-3).prod(dim=1).sqrt()
    pairs: set[tuple[float, float]] = set()
    for low, high in product(_quantiles(sizes, SMALLEST_AT), _quantiles(sizes, LARGEST_AT)):
        # Sizes that are all alike still want default boxes a little smaller and larger.
        smallest = min_scale or round(min(low, (max_scale or high) / SPREAD), 4)
        pairs.add((smallest, max_scale or round(min(1.0, max(high, smallest * SPREAD)), 4)))
    return [
        AnchorLayout(finest_stride=stride, min_scale=low, max_scale=high)
        for stride in strides
        for low, high in sorted(pairs)
    ]


def _quantiles(values: Tensor, at: Sequence[float]) -> list[float]:
    return [float(value) for value in torch.quantile(values, torch.tensor(at)).clamp(0.01, 0.95)]


def _fit(objects: Tensor, layout: AnchorLayout, levels: MakeLevels, *, threshold: float) -> AnchorFit:
    best = best_overlaps(objects, levels(layout))
    return AnchorFit(
        layout=layout,
        matched=float((best >= threshold).float().mean()),
        overlap=float(best.mean()),
    )


def _goodness(fit: AnchorFit) -> tuple[float, float]:
    return round(fit.matched, 2), fit.overlap
