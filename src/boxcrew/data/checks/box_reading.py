"""The meaning of the four numbers of a box: their order and unit, for many boxes at once."""

from __future__ import annotations

from typing import get_args

import numpy as np

from boxcrew.core.types import Bools
from boxcrew.data.checks.box_repair import SILENT_OVERHANG, Floats64
from boxcrew.data.config import BoxOptions, BoxOrder, Coordinates

ORDERS: tuple[BoxOrder, ...] = get_args(BoxOrder)
UNITS: tuple[Coordinates, ...] = get_args(Coordinates)

_SWAPPED_AXES: dict[BoxOrder, BoxOrder] = {"yxyx": "xyxy", "yxhw": "xywh", "cycxhw": "cxcywh"}
_PERCENT = 100.0
_LEAST_SIDE = 1.5  # pixels; a whole image in fractions, read as pixels, has less


def swaps_axes(order: BoxOrder) -> bool:
    return order in _SWAPPED_AXES


def to_numbers(boxes: Floats64, order: BoxOrder) -> Floats64:
    """Return the four numbers, (N, 4), that boxes as xyxy have in another order."""
    low, high = boxes[:, :2], boxes[:, 2:]
    base = _SWAPPED_AXES.get(order, order)
    if base == "xywh":
        boxes = np.concatenate([low, high - low], axis=1)
    elif base == "cxcywh":
        boxes = np.concatenate([(low + high) / 2, high - low], axis=1)
    return boxes[:, [1, 0, 3, 2]] if base != order else boxes


def to_corners(numbers: Floats64, order: BoxOrder) -> Floats64:
    """Return boxes as xyxy, (N, 4), from numbers in another order: the inverse of `to_numbers`."""
    base = _SWAPPED_AXES.get(order, order)
    if base != order:
        numbers = numbers[:, [1, 0, 3, 2]]
    first, second = numbers[:, :2], numbers[:, 2:]
    if base == "xywh":
        return np.concatenate([first, first + second], axis=1)
    if base == "cxcywh":
        return np.concatenate([first - second / 2, first + second / 2], axis=1)
    return numbers


def reorder(boxes: Floats64, order: BoxOrder, options: BoxOptions) -> Floats64:
    """Return the boxes (N, 4), read as if their numbers were in `order`, as the options say they are meant.
    Percent become fractions; all else keeps its unit.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        if options.boxes != "auto":
            boxes = to_corners(to_numbers(boxes, order), options.boxes)
        return boxes / _PERCENT if options.coordinates == "percent" else boxes


def in_pixels(boxes: Floats64, unit: Coordinates, sizes: Floats64) -> Floats64:
    """Return boxes of that unit (N, 4) in pixels of their images of `sizes` (N, 2)."""
    if unit == "pixels":
        return boxes
    return boxes * np.tile(sizes, 2) / (_PERCENT if unit == "percent" else 1.0)


def fit_images(boxes: Floats64, sizes: Floats64) -> Bools:
    """Return which boxes (N, 4), in pixels, are plausible: inside their images, with the corners in order and
    no side of hardly a pixel.
    """
    low, high = boxes[:, :2], boxes[:, 2:]
    fits = (low >= -SILENT_OVERHANG) & (high <= sizes + SILENT_OVERHANG) & (high - low >= _LEAST_SIDE)
    return fits[:, 0] & fits[:, 1]
