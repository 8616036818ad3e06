"""Boxes as they stand in annotation files, brought into the image."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools
from boxcrew.data.checks.problem import Kind

Box = tuple[float, float, float, float]
"""xyxy in pixels."""

Floats64 = npt.NDArray[np.float64]

Faults = tuple[tuple[Kind, str], ...]
"""What is wrong with a box: the kind, and the words."""

_SILENT_OVERHANG = 1.0  # pixels; tools disagree on whether the last pixel is width or width - 1
_PLAIN_SIDE, _PLAIN_SIZE = 0.01, 65_536  # a side so long, in an image no larger, is not lost in float32


def clip_plain(boxes: Floats64, sizes: Floats64) -> tuple[Floats64, Bools]:
    """(N, 4) boxes clipped to their images, and of which of them `repair` would have nothing else to say.
    `sizes` are (N, 2), each the width and height of the box's image. Nearly all boxes are so, and a set may
    have millions: only the others have to be looked at one by one.
    """
    low, high = boxes[:, :2], boxes[:, 2:]
    inside_low, inside_high = np.maximum(low, 0), np.minimum(high, sizes)
    plain = (low <= high) & (low >= -_SILENT_OVERHANG) & (high <= sizes + _SILENT_OVERHANG)
    plain &= (inside_high - inside_low >= _PLAIN_SIDE) & (sizes <= _PLAIN_SIZE)
    return np.concatenate([inside_low, inside_high], axis=1), plain[:, 0] & plain[:, 1]


def repair(box: Box, width: int, height: int) -> tuple[Box | None, Faults]:
    """The part of `box` inside the image with its corners in order, or None if nothing is left; and what
    was wrong with it (an overhang of a pixel, on which tools do not agree, is not).
    """
    x0, y0, x1, y1 = box
    if not all(map(math.isfinite, box)):
        return None, (("box-nan", f"box {show_box(box)} has a side that is not a number"),)
    x0, x1 = sorted((x0, x1))
    y0, y1 = sorted((y0, y1))
    inside = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
    empty = x0 == x1 or y0 == y1
    if not empty and (inside[0] >= inside[2] or inside[1] >= inside[3]):
        return None, (("box-outside", f"box {show_box(box)} lies outside the image of {width} x {height}"),)
    if empty or not _has_area(inside):
        return None, (("box-empty", f"box {show_box(box)} is empty"),)
    faults: list[tuple[Kind, str]] = []
    if (x0, y0) != (box[0], box[1]):
        faults.append(("box-swapped", f"box {show_box(box)} has its corners swapped"))
    if max(-x0, -y0, x1 - width, y1 - height) > _SILENT_OVERHANG:
        larger = x1 - x0 > width or y1 - y0 > height
        kind: Kind = "box-larger-than-image" if larger else "box-overhang"
        what = "is larger than" if larger else "reaches out of"
        faults.append((kind, f"box {show_box(box)} {what} the image of {width} x {height}"))
    return inside, tuple(faults)


def turn(box: Box, orientation: int, width: int, height: int) -> Box:
    """A box of the stored image, seen in the upright one of `width` x `height`. `orientation` is EXIF's, 5 to
    8: those that swap the sides. Must do to boxes what reading does to pixels.
    """
    y0, x0, y1, x1 = box
    if orientation in {6, 7}:
        x0, x1 = width - x1, width - x0
    if orientation in {7, 8}:
        y0, y1 = height - y1, height - y0
    return x0, y0, x1, y1


def fits(box: Box, width: int, height: int) -> bool:
    """Whether all of it lies in an image of that size, give or take a pixel."""
    low, high = -_SILENT_OVERHANG, _SILENT_OVERHANG
    return all(low <= x <= width + high for x in box[::2]) and all(
        low <= y <= height + high for y in box[1::2]
    )


def show_box(box: Box) -> str:
    return f"[{', '.join(f'{value:g}' for value in box)}]"


def _has_area(box: Box) -> bool:
    """In float32, which boxes are kept in."""
    low, high = np.array(box, dtype=np.float32).reshape(2, 2)
    return bool((low < high).all())
