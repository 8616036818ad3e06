"""Anchor points: the centers of the cells of feature maps, and which of them learn which object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

ALPHA, BETA = 0.5, 2.0
"""Powers of score and IoU in the alignment of a point with an object (Feng et al. 2021, equation 1). The IoU
has the power 6 there; with it few points learn an object at first, which a short run cannot afford.
"""

_PRIOR = 1e-3  # alignment of a point at the center of an object, whatever the network says
_TINY = 1e-9


class Points(NamedTuple):
    """The points of all maps of an input, finest map first."""

    centers: Tensor  # (P, 2) x, y in pixels of the input
    strides: Tensor  # (P,) pixels


def cell_centers(maps: Sequence[Tensor], strides: Sequence[int]) -> Points:
    """Return the center of every cell of the maps (B, C, H, W), row by row."""
    centers, steps = [], []
    for features, stride in zip(maps, strides, strict=True):
        height, width = features.shape[-2:]
        x = (torch.arange(width, device=features.device, dtype=features.dtype) + 0.5) * stride
        y = (torch.arange(height, device=features.device, dtype=features.dtype) + 0.5) * stride
        centers.append(torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).reshape(-1, 2))
        steps.append(x.new_full((height * width,), stride))
    return Points(torch.cat(centers), torch.cat(steps))


def boxes_at(points: Points, distances: Tensor) -> Tensor:
    """Return boxes (B, P, 4) xyxy from the distances (B, P, 4) of points to their left, top, right and bottom
    sides, which are in strides.
    """
    pixels = distances * points.strides[:, None]
    return torch.cat((points.centers - pixels[..., :2], points.centers + pixels[..., 2:]), dim=-1)


def distances_to(points: Points, boxes: Tensor) -> Tensor:
    """Return the distances (B, P, 4) of `boxes_at`; negative where a point is outside of its box."""
    pixels = torch.cat((points.centers - boxes[..., :2], boxes[..., 2:] - points.centers), dim=-1)
    return pixels / points.strides[:, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Assigned:
    """The objects that P points of B images learn, and how well the box of each point fits its object."""

    owner: Tensor  # (B, P) int64, the object; 0 where the point learns none
    quality: Tensor  # (B, P) 0..1, the IoU, which is the score to be learned; 0 where there is no object


@torch.no_grad()
def assign_aligned(
    points: Points, scores: Tensor, boxes: Tensor, *, objects: Tensor, labels: Tensor, num_points: int
) -> Assigned:
    """Assign to each object the `num_points` points inside it that are aligned best (Feng et al. 2021).

    `scores` (B, P, C) are 0..1, `boxes` (B, P, 4) and `objects` (B, M, 4) are xyxy in pixels, and `labels`
    (B, M) are -1 for padding. A point is aligned by score^0.5 x IoU^2, plus a little for being near the
    center: an untrained network would otherwise align nothing, and learn nothing on few images. A point that
    several objects want goes to the one it overlaps most.
    """
    valid = labels >= 0
    iou = _iou(objects, boxes)  # (B, M, P)
    own_scores = scores.transpose(1, 2).gather(1, _expand(labels.clamp(min=0), scores.shape[1]))
    inside = _is_inside(points, objects) & valid[..., None]
    alignment = own_scores.clamp(min=0) ** ALPHA * iou**BETA + _PRIOR * _center_prior(points, objects)
    wanted = _largest(alignment * inside, num_points) & inside
    overlap, owner = torch.where(wanted, iou, -1.0).max(dim=1)  # (B, P)
    return Assigned(owner=owner.masked_fill(overlap < 0, 0), quality=overlap.clamp(min=0))


def _expand(labels: Tensor, num_points: int) -> Tensor:
    return labels[..., None].expand(-1, -1, num_points)


def _largest(values: Tensor, num: int) -> Tensor:
    """Return a mask of the `num` largest values along the last dimension; of equal ones the first."""
    order = values.argsort(dim=-1, descending=True, stable=True)[..., :num]
    return torch.zeros_like(values, dtype=torch.bool).scatter_(-1, order, value=True)


def _is_inside(points: Points, objects: Tensor) -> Tensor:
    """Return (B, M, P) whether a point is in an object or on its edge; sides count as a stride at least."""
    low, high = objects[:, :, None, :2], objects[:, :, None, 2:]
    missing = (points.strides[:, None] - (high - low)).clamp(min=0) / 2  # at each end
    centers = points.centers
    return ((centers >= low - missing) & (centers <= high + missing)).all(dim=-1)


def _center_prior(points: Points, objects: Tensor) -> Tensor:
    """Return (B, M, P) 1 at the center of an object, less where a point is far from it in strides."""
    centers = (objects[..., :2] + objects[..., 2:]) / 2
    offsets = (points.centers - centers[:, :, None]) / points.strides[:, None]
    return torch.exp(-(offsets**2).sum(dim=-1) / 2)


def paired_giou(first: Tensor, second: Tensor) -> Tensor:
    """Return the generalized IoU (…,) of pairs of boxes (…, 4), -1..1 (Rezatofighi et al. 2019).

    torchvision's loss of the same name has shapes that depend on data.
    """
    iou, union = _iou_and_union(first, second)
    low = torch.minimum(first[..., :2], second[..., :2])
    high = torch.maximum(first[..., 2:], second[..., 2:])
    hull = (high - low).clamp(min=0).prod(dim=-1)
    return iou - (hull - union) / hull.clamp(min=_TINY)


def _iou(first: Tensor, second: Tensor) -> Tensor:
    """Return the IoU (B, M, P) of boxes (B, M, 4) and (B, P, 4)."""
    return _iou_and_union(first[:, :, None], second[:, None])[0]


def _iou_and_union(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    low = torch.maximum(first[..., :2], second[..., :2])
    high = torch.minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clamp(min=0).prod(dim=-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1) for boxes in (first, second)]
    union = areas[0] + areas[1] - shared
    return shared / union.clamp(min=_TINY), union
