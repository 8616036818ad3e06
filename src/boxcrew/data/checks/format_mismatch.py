"""Finding the one cause of many problems in a set: boxes in another unit or order, for images of another
size, or classes that are numbered from one.

Nothing is changed because of a cause. It is a sentence, with the settings that read the files as meant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.box_reading import (
    ORDERS,
    UNITS,
    fit_images,
    in_pixels,
    swaps_axes,
    to_corners,
    to_numbers,
)
from boxcrew.data.checks.box_repair import Floats64
from boxcrew.data.config import BoxOrder, Coordinates

_EXPLAINED = 0.9  # share of the faults that a cause must explain
_FEW = 5  # fewer faults have no common cause
_HALF, _SOME, _SOME_AT_LEAST = 0.5, 0.1, 10  # faults: half of the boxes, or a tenth and no fewer than ten
_SAME_SHAPE = 0.02  # by which the factors of width and height may differ, because sizes are rounded
_RESIZED = 1.1  # factor of two sizes below which boxes do not tell them apart
_PERCENT_BOXES, PERCENT_SIDE = 20, 200  # boxes, and sides of their images, that tell percent from pixels
_PER_SETTING, _PER_UNREACHED = 0.01, 0.2  # cost of a setting, and of images whose far end no box reaches
_REACHED = 90.0  # percent of the image that some of these boxes reach
_SHOWN = 4  # unknown classes that are named

_ORDER_NAMES: dict[BoxOrder, str] = {
    "xyxy": "x, y, x, y of two corners",
    "xywh": "x, y of a corner, width, height",
    "cxcywh": "x, y of the center, width, height",
    "yxyx": "y, x, y, x of two corners",
    "yxhw": "y, x of a corner, height, width",
    "cycxhw": "y, x of the center, height, width",
}


class FormatMismatch(NamedTuple):
    """The cause of many problems."""

    message: str  # a sentence that ends with the settings
    settings: str = ""  # such as "data.coordinates=pixels"; empty if none would help


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadBoxes:
    """All N boxes of a set, as they were read."""

    boxes: Floats64  # (N, 4) xyxy; in pixels or, if they are fractions or percent in the files, in fractions
    sizes: Floats64  # (N, 2) width and height of their images
    annotated: Floats64  # (N, 2) the same as the annotations say; zeros if they do not
    images: Ints  # (N,) the number of the image
    unit: Coordinates  # of the numbers in the files
    order: BoxOrder

    @cached_property
    def numbers(self) -> Floats64:
        """The numbers in the files, (N, 4)."""
        numbers = to_numbers(self.boxes, self.order)
        return numbers * 100 if self.unit == "percent" else numbers

    def reread(self, unit: Coordinates, order: BoxOrder) -> Floats64:
        """Return the boxes in pixels that the same numbers are in another unit and order."""
        return in_pixels(to_corners(self.numbers, order), unit, self.sizes)


def box_mismatch(read: ReadBoxes) -> FormatMismatch | None:
    """Return why most boxes that do not fit their images do not, or None if there is no single cause."""
    if not len(read.boxes):
        return None
    with np.errstate(all="ignore"):
        fits = fit_images(in_pixels(read.boxes, _unit_read(read), read.sizes), read.sizes)
        return _size_cause(read) or _reading_cause(read, fits) or _percent_cause(read, fits)


def _unit_read(read: ReadBoxes) -> Coordinates:
    return "pixels" if read.unit == "pixels" else "fractions"


def _size_cause(read: ReadBoxes) -> FormatMismatch | None:
    """Find out whether the images were resized after they had been annotated."""
    stated = (read.annotated > 0).all(axis=1)
    differs = stated & (read.annotated != read.sizes).any(axis=1)
    if read.unit != "pixels" or not differs.any():
        return None
    factors = read.sizes / read.annotated
    one_factor = np.abs(factors[:, 0] / factors[:, 1] - 1) <= _SAME_SHAPE
    resized = differs & one_factor & (np.abs(np.log(factors[:, 0])) >= math.log(_RESIZED))
    num_resized, num_differing = (len(np.unique(read.images[mask])) for mask in (resized, differs))
    num_images = len(np.unique(read.images))
    if num_resized < max(_FEW, _EXPLAINED * num_differing, _SOME * num_images):
        return None
    if resized.sum() < _SOME_AT_LEAST or _share(fit_images(read.boxes, read.annotated), resized) < _EXPLAINED:
        return None
    shrunk = resized & (factors[:, 0] < 1)  # where the boxes fit as they are, the stated size is wrong
    if shrunk.any() and _share(~fit_images(read.boxes, read.sizes), shrunk) < _SOME:
        return None
    return FormatMismatch(
        f"{num_resized} of {num_images} images were resized after they had been annotated: their boxes fit "
        "the size that the annotations state, and data.rescale=true scales them",
        "data.rescale=true",
    )


def _share(values: Bools, mask: Bools) -> float:
    return float(values[mask].mean())


class _Reading(NamedTuple):
    """A way to read all boxes, and how well they fit then."""

    unit: Coordinates
    order: BoxOrder
    num_fitting: int
    cost: float  # share of boxes that do not fit, and a little more for what makes the reading unlikely


def _reading_cause(read: ReadBoxes, fits: Bools) -> FormatMismatch | None:
    """Find another unit or order of the numbers in which nearly all boxes fit."""
    num, num_faulty = len(fits), int((~fits).sum())
    most = num_faulty >= max(_FEW, _HALF * num)
    if not most and num_faulty < max(_SOME_AT_LEAST, _SOME * num):
        return None
    best, *others = sorted(_readings(read), key=lambda reading: reading.cost)
    if best.num_fitting < num - (1 - _EXPLAINED) * num_faulty:
        return None
    given, meant, settings = _compare(read, best)
    is_tiny = (read.unit, best.unit) == ("pixels", "fractions")
    fault = "are no larger than a pixel" if is_tiny else f"do not fit their images as {given}"
    as_good = [_compare(read, other)[2] for other in others if _is_as_good(other, best, read.order)]
    ending = f" (or {as_good[0]}, if that looks right)" if as_good else ""
    explained = f"{num_faulty} of {num} boxes {fault}, but {best.num_fitting} would fit as {meant}"
    return FormatMismatch(f"{explained}: {settings}{ending}", settings)


def _is_as_good(other: _Reading, best: _Reading, order: BoxOrder) -> bool:
    """Return whether the boxes do not tell which of two orders, both not the usual `order`, is meant."""
    if order in (other.order, best.order) or swaps_axes(other.order) != swaps_axes(best.order):
        return False
    return other.unit == best.unit and other.num_fitting >= best.num_fitting


def _readings(read: ReadBoxes) -> Iterator[_Reading]:
    """Yield all other readings. The fewer settings differ, and the better the boxes fill the images, the less
    a reading costs: percent are small numbers, and would often fit as pixels.
    """
    for unit, order in itertools.product(UNITS, ORDERS):
        if (unit, order) == (read.unit, read.order):
            continue
        boxes = read.reread(unit, order)
        fits = fit_images(boxes, read.sizes)
        reach = (boxes[fits, 2:] / read.sizes[fits]).max(axis=0, initial=0).clip(0, 1).mean()
        changes = (unit != read.unit) + (order != read.order) + (swaps_axes(order) != swaps_axes(read.order))
        cost = float((~fits).mean() + _PER_SETTING * changes + _PER_UNREACHED * (1 - reach))
        yield _Reading(unit, order, int(fits.sum()), cost)


def _compare(read: ReadBoxes, other: _Reading) -> tuple[str, str, str]:
    """Return what differs in two readings, in words for each, and the settings of the other."""
    given, meant, settings = [], [], []
    if other.order != read.order:
        given.append(_ORDER_NAMES[read.order])
        meant.append(_ORDER_NAMES[other.order])
        settings.append(f"data.boxes={other.order}")
    if other.unit != read.unit:
        given.append(read.unit)
        meant.append(other.unit)
        settings.append(f"data.coordinates={other.unit}")
    return " in ".join(given), " in ".join(meant), " ".join(settings)


def _percent_cause(read: ReadBoxes, fits: Bools) -> FormatMismatch | None:
    """Find out whether boxes that fit as pixels are percent: together they fill a square of 100 pixels at the
    corner of images that are much larger.
    """
    num = int(fits.sum())
    if read.unit != "pixels" or num < max(_PERCENT_BOXES, _EXPLAINED * len(fits)):
        return None
    ends = read.boxes[fits, 2:].max(axis=0)
    if ends.max() > 100 or ends.min() < _REACHED or read.sizes.min() < PERCENT_SIDE:
        return None
    settings = "data.coordinates=percent"
    corner = f"{num} of {len(fits)} boxes lie in the top left 100 pixels of larger images"
    return FormatMismatch(f"{corner}, and would fit them as percent: {settings}", settings)


def class_mismatch(
    ids: Ints, num_listed: int, *, first: int, unlisted: Collection[str]
) -> FormatMismatch | None:
    """Return why boxes have classes that are not listed, or None if there is no single cause. `ids` are those
    in the files, for each box; the `num_listed` classes have the ids from `first` on. `unlisted` are the
    classes, for each box, that a reader has left out already.
    """
    outside = (ids < first) | (ids >= first + num_listed)
    num_unknown, num = int(outside.sum()) + len(unlisted), len(ids) + len(unlisted)
    if not num_unknown:
        return None
    used = np.unique(ids)
    if not unlisted and num >= _FEW and _starts_later(used, num_listed, first):
        settings = f"data.first_class={first + 1}"
        return FormatMismatch(
            f"the labels use class ids {used[0]} to {used[-1]}, but the {num_listed} classes are numbered "
            f"from {first}: {num_unknown} of {num} boxes are left out, and the others are one class off; "
            f"{settings} numbers the classes from {first + 1}",
            settings,
        )
    if num_unknown < max(_FEW, _SOME * num):
        return None
    names = [*map(str, np.unique(ids[outside])), *sorted(set(unlisted))]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return FormatMismatch(
        f"{num_unknown} of {num} boxes are left out, because the labels use more classes than the "
        f"{num_listed} that are listed ({shown}): list all of them"
    )


def _starts_later(used: Ints, num_listed: int, first: int) -> bool:
    """Return whether the ids are one higher than the list says: the last is used, the first never."""
    return bool(used[0] > first and used[-1] == first + num_listed and 2 * len(used) >= num_listed)
