"""The parts that detectors with anchor points share: targets of points, the choice of their boxes, and which
objects their boxes can fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.input_size import InputSize
from boxcrew.detectors._base import Candidates, HeightWidth, ScoredBoxes
from boxcrew.nets.points import Points, assign_aligned
from boxcrew.nets.static import score_ranks, top_ranked


class PointTargets(NamedTuple):
    """The targets of P points of B images, by the task-aligned assigner."""

    boxes: Tensor  # (B, P, 4) xyxy in pixels, of any object where a point learns none
    scores: Tensor  # (B, P, C) the quality of the point, for the class of its object; 0 elsewhere
    quality: Tensor  # (B, P) 0..1, 0 where a point learns no object


def point_targets(
    points: Points, scores: Tensor, boxes: Tensor, *, targets: Mapping[str, Tensor], num_points: int
) -> PointTargets:
    """Return what the points learn, at most `num_points` for each object of `targets`. The scores (B, P, C),
    0..1, and boxes (B, P, 4) of the network decide which; no gradient flows through the choice.
    """
    objects, labels = targets["boxes"].to(boxes.dtype), targets["labels"]
    assigned = assign_aligned(
        points, scores.detach(), boxes.detach(), objects=objects, labels=labels, num_points=num_points
    )
    quality = assigned.quality
    wanted_labels = labels.gather(1, assigned.owner).clamp(min=0)
    return PointTargets(
        boxes=objects.gather(1, assigned.owner[..., None].expand(-1, -1, 4)),
        scores=F.one_hot(wanted_labels, scores.shape[2]) * quality[..., None],
        quality=quality,
    )


def best_candidates(scored: ScoredBoxes, size: HeightWidth, *, count: int) -> Candidates:
    """Return the `count` best pairs of a box and a class, clipped to the input, whose (height, width) is
    `size`.
    """
    from torchvision.ops import clip_boxes_to_image

    boxes, scores = scored
    num_classes = scores.shape[2]
    index = top_ranked(score_ranks(scores.flatten(1)), count=count)
    best = scores.flatten(1).gather(1, index)
    labels, point = index % num_classes, index // num_classes
    clipped = clip_boxes_to_image(boxes, size).gather(1, point[..., None].expand(-1, -1, 4))
    return Candidates(clipped, best, labels)


def best_point_iou(
    boxes: Tensor, strides: Sequence[int], size: InputSize, *, max_strides: float = math.inf
) -> Tensor:
    """Return the IoU (N,) of each box (N, 4), xyxy in pixels of the input, with the best box that a point can
    give. Such a box contains its point, and has no side more than `max_strides` strides away from it: very
    small objects may have no point inside them, and very large ones be out of reach.
    """
    longest = size.limit or size.sides[-1]
    area = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(dim=1)
    best = torch.zeros_like(area)
    for stride in strides:
        nearest = (
            ((boxes[:, :2] + boxes[:, 2:]) / 2 / stride).floor().clamp(0, math.ceil(longest / stride) - 1)
        )
        point, reach = (nearest + 0.5) * stride, max_strides * stride
        low = torch.minimum(boxes[:, :2], point).maximum(point - reach)
        high = torch.maximum(boxes[:, 2:], point).minimum(point + reach)
        shared = (
            (torch.minimum(high, boxes[:, 2:]) - torch.maximum(low, boxes[:, :2])).clamp(min=0).prod(dim=1)
        )
        union = area + (high - low).prod(dim=1) - shared
        best = torch.maximum(best, shared / union.clamp(min=1e-9))
    return best
