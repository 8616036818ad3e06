"""Several images in one training sample: four in a mosaic, objects pasted from another, or two blended, with
the objects of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from boxcrew.core.boxes import area, intersection
from boxcrew.core.input_size import Extent
from boxcrew.core.types import Floats, Image, Sample, Target
from boxcrew.data.transforms.view import move_boxes

_CENTER = (0.25, 0.75)  # of the canvas, where the four tiles of a mosaic may meet
_BLEND = 8.0  # both parameters of the beta distribution of shares: most are from 0.3 to 0.7
_MAX_PASTED = 3  # objects pasted into a sample
_PLACES_TRIED = 8  # for each of them
_MAX_HIDDEN = 0.1  # of the area of an object, by what is pasted over it
_MIN_PASTED_SIDE = 4  # pixels


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """The probabilities that a sample is a mosaic, that objects of another image are pasted into it, and that
    it is blended with another one.
    """

    mosaic: float = 0.0
    copy_paste: float = 0.0
    mixup: float = 0.0

    @property
    def num_images(self) -> int:
        """The most images that one sample is made of."""
        return ((4 if self.mosaic else 1) + (1 if self.copy_paste else 0)) * (2 if self.mixup else 1)


@dataclass(frozen=True, kw_only=True)
class MosaicCell:
    """The rectangle of a mosaic that one image has, in whole pixels."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def extent(self) -> Extent:
        return self.right - self.left, self.bottom - self.top


def mosaic_places(canvas: Extent, rng: np.random.Generator) -> tuple[MosaicCell, ...]:
    """Return the four rectangles of a mosaic on a canvas of this (width, height). They meet at a random point
    near the center.
    """
    x, y = (round(share * side) for share, side in zip(rng.uniform(*_CENTER, 2), canvas, strict=True))
    columns, rows = ((0, x), (x, canvas[0])), ((0, y), (y, canvas[1]))
    return tuple(
        MosaicCell(left=left, top=top, right=right, bottom=bottom)
        for top, bottom in rows
        for left, right in columns
    )


def join_tiles(tiles: Sequence[Sample], places: Sequence[MosaicCell], canvas: Extent) -> Sample:
    """Return the mosaic of tiles, each of which has the size of its place. Its key is that of the first."""
    image: Image = np.empty((*canvas[::-1], 3), dtype=np.uint8)
    moved = []
    for tile, place in zip(tiles, places, strict=True):
        image[place.top : place.bottom, place.left : place.right] = tile.image
        moved.append(_shifted(tile, (place.left, place.top)))
    return _joined(image, moved)


def blend(first: Sample, second: Sample, rng: np.random.Generator) -> Sample:
    """Return the weighted mean of two samples of one size, with the objects of both (Zhang et al. 2019, "Bag
    of Freebies for Training Object Detection Neural Networks", section 3.1). Its key is that of the first.
    """
    share = rng.beta(_BLEND, _BLEND)
    image: Image = cv2.addWeighted(first.image, share, second.image, 1 - share, 0)
    return _joined(image, [first, second])


def paste_objects(sample: Sample, other: Sample, rng: np.random.Generator) -> Sample:
    """Return the sample with a few objects of another sample of its size at random places, each a rectangle
    that shows one object and hides none (after Dwibedi et al. 2017, "Cut, Paste and Learn", but by boxes).
    """
    image, boxes = sample.image.copy(), sample.target.boxes
    pasted, moved = [], []
    for number in rng.permutation(_alone(other.target))[:_MAX_PASTED].tolist():
        left, top, right, bottom = np.round(other.target.boxes[number]).astype(int).tolist()
        place = _free_place((right - left, bottom - top), image, boxes, rng)
        if place is not None:
            image[place.top : place.bottom, place.left : place.right] = other.image[top:bottom, left:right]
            box = np.array([[place.left, place.top, place.right, place.bottom]], dtype=np.float32)
            boxes = np.concatenate((boxes, box))
            pasted.append(number)
            moved.append(box)
    if not pasted:
        return sample
    target = other.target.select(np.array(pasted)).with_boxes(np.concatenate(moved))
    none = {name: values[:0] for name, values in other.extra.items()}
    return _joined(image, [sample, Sample(image=image, target=target, key=other.key, extra=none)])


def _alone(target: Target) -> list[int]:
    """Return the objects that can be cut out without a part of another one."""
    hidden = _hidden_shares(target.boxes, target.boxes)
    np.fill_diagonal(hidden, 0)
    sides = (target.boxes[:, 2:] - target.boxes[:, :2]).min(axis=1, initial=np.inf)
    whole = ~(target.difficult | target.crowd) & (sides >= _MIN_PASTED_SIDE)
    return np.flatnonzero(whole & (hidden.max(axis=1, initial=0) <= _MAX_HIDDEN)).tolist()


def _free_place(extent: Extent, image: Image, boxes: Floats, rng: np.random.Generator) -> MosaicCell | None:
    """Return a random place of this (width, height) in an image that hides none of the boxes, if there is."""
    height, width = image.shape[:2]
    for _ in range(_PLACES_TRIED):
        left = int(rng.integers(width - extent[0] + 1))
        top = int(rng.integers(height - extent[1] + 1))
        box = np.array([[left, top, left + extent[0], top + extent[1]]], dtype=np.float32)
        if _hidden_shares(box, boxes).max(initial=0) <= _MAX_HIDDEN:
            return MosaicCell(left=left, top=top, right=left + extent[0], bottom=top + extent[1])
    return None


def _hidden_shares(first: Floats, second: Floats) -> Floats:
    """Return the share of each second box that lies in each first one, (N, M)."""
    shares = intersection(first, second) / np.maximum(area(second), 1e-6)
    return shares.astype(np.float32)


def _shifted(tile: Sample, shift: tuple[int, int]) -> Sample:
    """Return a tile with its objects and regions in pixels of the mosaic."""
    boxes = move_boxes(tile.target.boxes, scale=(1, 1), shift=shift)
    extra = dict(tile.extra)
    if "regions" in extra:
        moved = move_boxes(extra["regions"], scale=(1, 1), shift=shift)
        extra["regions"] = np.where(extra["regions_valid"][:, None], moved, np.float32(0))
    return Sample(image=tile.image, target=tile.target.with_boxes(boxes), key=tile.key, extra=extra)


def _joined(image: Image, samples: Sequence[Sample]) -> Sample:
    targets = [vars(sample.target) for sample in samples]
    target = Target(**{name: np.concatenate([each[name] for each in targets]) for name in targets[0]})
    names = samples[0].extra
    extra = {name: np.concatenate([sample.extra[name] for sample in samples]) for name in names}
    return Sample(image=image, target=target, key=samples[0].key, extra=extra)
