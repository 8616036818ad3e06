"""Repair of annotated boxes: corners put in order, overhang clipped, useless boxes refused."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools
from boxcrew.data.checks.problem import ProblemKind

Box = tuple[float, float, float, float]
"""A box as xyxy in pixels."""

Floats64 = npt.NDArray[np.float64]

SILENT_OVERHANG = 1.0  # pixels; tools disagree whether the last pixel is width or width - 1
_CLEAN_SIDE, _CLEAN_SIZE = 0.01, 65_536  # a longer side in a smaller image survives float32


def clip_clean(boxes: Floats64, sizes: Floats64) -> tuple[Floats64, Bools]:
    """Return the boxes (N, 4) clipped to their images of `sizes` (N, 2), and a mask of those that are clean.
    A set may have millions of boxes; only those that are not clean have to go through `repair`.
    """
    low, high = boxes[:, :2], boxes[:, 2:]
    inside_low, inside_high = np.maximum(low, 0), np.minimum(high, sizes)
    clean = (low <= high) & (low >= -SILENT_OVERHANG) & (high <= sizes + SILENT_OVERHANG)
    clean &= (inside_high - inside_low >= _CLEAN_SIDE) & (sizes <= _CLEAN_SIZE)
    return np.concatenate([inside_low, inside_high], axis=1), clean[:, 0] & clean[:, 1]


def repair(box: Box, width: int, height: int) -> tuple[Box | None, list[tuple[ProblemKind, str]]]:
    """Return `box` clipped to the image with its corners in order (None if nothing is left), and its faults.
    An overhang of up to one pixel is clipped without being a fault, because tools disagree about it.
    """
    x0, y0, x1, y1 = box
    if not all(map(math.isfinite, box)):
        return None, [("box-nan", f"box {show_box(box)} has a side that is not a number")]
    x0, x1 = sorted((x0, x1))
    y0, y1 = sorted((y0, y1))
    inside = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
    empty = x0 == x1 or y0 == y1
    if not empty and (inside[0] >= inside[2] or inside[1] >= inside[3]):
        return None, [("box-outside", f"box {show_box(box)} lies outside the image of {width} x {height}")]
    # Targets store float32.
    if empty or not (np.array(inside[:2], np.float32) < np.array(inside[2:], np.float32)).all():
        return None, [("box-empty", f"box {show_box(box)} is empty")]
    faults: list[tuple[ProblemKind, str]] = []
    if (x0, y0) != (box[0], box[1]):
        faults.append(("box-swapped", f"box {show_box(box)} has its corners swapped"))
    if max(-x0, -y0, x1 - width, y1 - height) > SILENT_OVERHANG:
        larger = x1 - x0 > width or y1 - y0 > height
        kind: ProblemKind = "box-larger-than-image" if larger else "box-overhang"
        relation = "is larger than" if larger else "extends beyond"
        faults.append((kind, f"box {show_box(box)} {relation} the image of {width} x {height}"))
    return inside, faults


def rotate_box(box: Box, orientation: int, width: int, height: int) -> Box:
    """Map a box of the stored image into the upright image of `width` x `height`, as `read_image` does with
    pixels. `orientation` is EXIF's, 5 to 8: those that swap the sides.
    """
    y0, x0, y1, x1 = box
    if orientation in {6, 7}:
        x0, x1 = width - x1, width - x0
    if orientation in {7, 8}:
        y0, y1 = height - y1, height - y0
    return x0, y0, x1, y1


def is_inside(box: Box, width: int, height: int) -> bool:
    """Return whether the box lies in an image of that size, with a pixel of tolerance."""
    sides = zip(box, (width, height, width, height), strict=True)
    return all(-SILENT_OVERHANG <= value <= side + SILENT_OVERHANG for value, side in sides)


def show_box(box: Box) -> str:
    return f"[{', '.join(f'{value:g}' for value in box)}]"
