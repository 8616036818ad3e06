"""Default boxes, and the encoding of a box relative to one (SSD, section 2.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Level:
    """The default boxes of one feature map. Sizes are fractions of the input's side."""

    height: int  # of the map, in cells
    width: int
    step: tuple[float, float]  # x and y distance of neighboring cells, as fractions of the input
    shapes: tuple[tuple[float, float], ...]  # width and height of each box of a cell


def paper_shapes(scale: float, next_scale: float, ratios: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return the shapes of a cell: a square of `scale`, one up to `next_scale`, and two for each ratio."""
    between = (scale * next_scale) ** 0.5
    shapes = [(scale, scale), (between, between)]
    for ratio in ratios:
        root = ratio**0.5
        shapes += [(scale * root, scale / root), (scale / root, scale * root)]
    return tuple(shapes)


def default_boxes(levels: Sequence[Level], *, size: int) -> Tensor:
    """Return (A, 4) center-x, center-y, width, height in pixels of a `size` x `size` input.
    Boxes are ordered by level, row and cell, as the outputs of heads are. Sides are limited to the input.
    """
    boxes = []
    for level in levels:
        x = (torch.arange(level.width) + 0.5) * level.step[0]
        y = (torch.arange(level.height) + 0.5) * level.step[1]
        centers = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).reshape(-1, 1, 2)
        shapes = torch.tensor(level.shapes).clamp(max=1.0).expand(len(centers), -1, 2)
        boxes.append(torch.cat((centers.expand_as(shapes), shapes), dim=-1).reshape(-1, 4))
    return torch.cat(boxes) * size


def best_ious(boxes: Tensor, levels: Sequence[Level]) -> Tensor:
    """Return the IoU (N,) of each box (N, 4), xyxy as fractions of the input, with its best default box.
    Of all default boxes of one shape, that of the nearest cell is the best, so only this is computed.
    """
    return torch.stack([_best_of_level(boxes, level) for level in levels]).amax(dim=0)


def _best_of_level(boxes: Tensor, level: Level) -> Tensor:
    step, cells = torch.tensor(level.step), torch.tensor((level.width, level.height))
    nearest = ((boxes[:, :2] + boxes[:, 2:]) / 2 / step - 0.5).round().clamp(min=0).minimum(cells - 1)
    centers = ((nearest + 0.5) * step)[:, None]
    shapes = torch.tensor(level.shapes).clamp(max=1.0)[None]
    low = (centers - shapes / 2).maximum(boxes[:, None, :2])
    high = (centers + shapes / 2).minimum(boxes[:, None, 2:])
    shared = (high - low).clamp(min=0).prod(dim=2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)[:, None] + shapes.prod(dim=2)
    return (shared / (areas - shared)).amax(dim=1)


def to_xyxy(boxes: Tensor) -> Tensor:
    """Convert boxes (..., 4) from center and size to corners."""
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat((center - half, center + half), dim=-1)


def to_center_size(boxes: Tensor) -> Tensor:
    """Convert boxes (..., 4) from corners to center and size."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return torch.cat(((low + high) / 2, high - low), dim=-1)


@dataclass(frozen=True, kw_only=True)
class BoxCoder:
    """The offsets of a box from a default box, divided by the variances so that each has about unit size."""

    center_variance: float = 0.1
    size_variance: float = 0.2

    def encode(self, boxes: Tensor, anchors: Tensor) -> Tensor:
        """Return the offsets (..., 4) of xyxy boxes (..., 4) with positive sides from center-size anchors."""
        center = (boxes[..., :2] + boxes[..., 2:]) / 2
        size = boxes[..., 2:] - boxes[..., :2]
        shift = (center - anchors[..., :2]) / anchors[..., 2:] / self.center_variance
        growth = torch.log(size / anchors[..., 2:]) / self.size_variance
        return torch.cat((shift, growth), dim=-1)

    def decode(self, offsets: Tensor, anchors: Tensor) -> Tensor:
        """Return the xyxy boxes (..., 4) of these offsets. Growth is bounded so that exp stays finite."""
        center = offsets[..., :2] * self.center_variance * anchors[..., 2:] + anchors[..., :2]
        growth = (offsets[..., 2:] * self.size_variance).clamp(max=MAX_GROWTH)
        half = torch.exp(growth) * anchors[..., 2:] / 2
        return torch.cat((center - half, center + half), dim=-1)


MAX_GROWTH = math.log(1000 / 16)  # no box grows more than 62-fold from its default box
