"""Several images in one training sample: four in a mosaic, or two blended, with the objects of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from boxcrew.core.input_size import Extent
from boxcrew.core.types import Image, Sample, Target
from boxcrew.data.transforms.view import move_boxes

_CENTRE = (0.25, 0.75)  # of the canvas, where the four tiles of a mosaic may meet
_BLEND = 8.0  # both parameters of the beta distribution of shares: most are from 0.3 to 0.7


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """The probabilities that a sample is a mosaic, and that it is blended with another one."""

    mosaic: float
    mixup: float

    @property
    def num_images(self) -> int:
        """The most images that one sample is made of."""
        return (4 if self.mosaic else 1) * (2 if self.mixup else 1)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The rectangle of a mosaic that one image has, in whole pixels."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def extent(self) -> Extent:
        return self.right - self.left, self.bottom - self.top


def mosaic_places(canvas: Extent, rng: np.random.Generator) -> tuple[Place, ...]:
    """Return the four places of a mosaic on a canvas of this (width, height): its quarters, but that they
    meet at a random point near the center.
    """
    x, y = (round(share * side) for share, side in zip(rng.uniform(*_CENTRE, 2), canvas, strict=True))
    columns, rows = ((0, x), (x, canvas[0])), ((0, y), (y, canvas[1]))
    return tuple(
        Place(left=left, top=top, right=right, bottom=bottom)
        for top, bottom in rows
        for left, right in columns
    )


def join_tiles(tiles: Sequence[Sample], places: Sequence[Place], canvas: Extent) -> Sample:
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
