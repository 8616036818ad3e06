"""Boxes as numpy arrays (N, 4), xyxy, in pixels. Tensors have torchvision's functions for the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Floats


def area(boxes: Floats) -> Floats:
    """Return the areas (N,); zero where a box has no extent."""
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    areas: Floats = sides[:, 0] * sides[:, 1]
    return areas


def clip(boxes: Floats, width: float, height: float) -> Floats:
    """Return the boxes cut off at the edges of an image."""
    limits = np.array([width, height, width, height], dtype=np.float32)
    return np.clip(boxes, np.float32(0), limits)


def intersection(first: Floats, second: Floats) -> Floats:
    """Return the areas of intersection (N, M)."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    sides = np.maximum(high - low, 0)
    areas: Floats = sides[..., 0] * sides[..., 1]
    return areas


def iou(first: Floats, second: Floats) -> Floats:
    """Return intersection over union (N, M); zero where both boxes are empty."""
    shared = intersection(first, second)
    union = area(first)[:, None] + area(second)[None, :] - shared
    ratio: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratio


def centers_inside(boxes: Floats, window: npt.ArrayLike) -> Bools:
    """Return whether the center of each box lies strictly inside `window` (4,), as (N,) flags."""
    x0, y0, x1, y1 = np.asarray(window, dtype=np.float32)
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside: Bools = (centers[:, 0] > x0) & (centers[:, 1] > y0) & (centers[:, 0] < x1) & (centers[:, 1] < y1)
    return inside
