"""Methods that propose regions of an image: here selective search (Uijlings et al. 2013), from OpenCV."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import cv2
import numpy as np

from boxcrew.core.types import Floats, Image, Ints
from boxcrew.data.transforms.draws import sample_draws

Variant = Literal["fast", "quality"]

LONGEST_SIDE = 500  # pixels: larger images are proposed for at this size, as in the original
_SMALLEST = 0.02  # of the longest side; the original's 0.04 would lose objects of small photos
_FAST_K, _SIGMA = 50, 0.8  # k = 50, 100 and 150 (the paper: 50, 100); OpenCV's own 150, 300, 450 miss more
_VERSION = 2  # of what is done around OpenCV; another one makes stored proposals invalid


class ProposalMethod(Protocol):
    """A method that proposes regions. It is picklable, and the same image always gets the same regions."""

    @property
    def key(self) -> str:
        """The method, its settings and the version of its library: all that the regions depend on."""

    def __call__(self, image: Image) -> Floats:
        """Return regions (N, 4), xyxy in pixels of an RGB image. The first few of them are the best
        choice of so many, or a fair one.
        """


@dataclass(frozen=True)
class SelectiveSearch:
    """Selective search of OpenCV, with 12 segmentations of an image (fast) or 80 (quality)."""

    variant: Variant

    @property
    def key(self) -> str:
        return f"selective search {self.variant}, {LONGEST_SIDE} px, {_VERSION}, OpenCV {cv2.__version__}"

    def __call__(self, image: Image) -> Floats:
        height, width = image.shape[:2]
        scale = min(1.0, LONGEST_SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        small = image if scale == 1 else cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        # OpenCV gives the set in an order that libc's rand() decides: sort it, then order it by the image.
        boxes = np.unique(_search(small, self.variant), axis=0)
        is_large = (boxes[:, 2:] - boxes[:, :2]).min(axis=1) >= _SMALLEST * max(size)
        boxes = boxes[is_large] if is_large.any() else np.array([[0, 0, *size]])
        boxes = boxes[_keyed_order(image, len(boxes))]
        scaled: Floats = (boxes * (np.array([width, height] * 2) / np.array([*size] * 2))).astype(np.float32)
        return scaled


SELECTIVE_SEARCH: Mapping[str, SelectiveSearch] = {
    variant: SelectiveSearch(variant) for variant in get_args(Variant)
}
"""Both variants by their names."""


@dataclass(frozen=True, kw_only=True)
class Proposer:
    """A method that proposes regions of an image, of which the first few are used."""

    method: ProposalMethod
    count: int

    def __call__(self, image: Image) -> Floats:
        return self.method(image)[: self.count]


def _search(image: Image, variant: Variant) -> Ints:
    """Return the proposals (N, 4) of OpenCV, xyxy in pixels of a small image; none where it finds none."""
    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(image[:, :, ::-1]))  # it wants BGR
    if variant == "fast":
        search.switchToSelectiveSearchFast(_FAST_K, _FAST_K, _SIGMA)
    else:
        search.switchToSelectiveSearchQuality()
    corners = np.asarray(search.process(), dtype=np.int64).reshape(-1, 4)
    return np.concatenate((corners[:, :2], corners[:, :2] + corners[:, 2:]), axis=1)


def _keyed_order(image: Image, num: int) -> Ints:
    """Return a permutation of `num` numbers that depends on the pixels of the image alone."""
    digest = hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=8).digest()
    numbers = np.arange(num, dtype=np.int64)
    keys = sample_draws(int.from_bytes(digest, "little"), np.zeros_like(numbers), numbers)
    return np.argsort(keys, kind="stable")
