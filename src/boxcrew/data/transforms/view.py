"""Views: the position of a source image on an output canvas, as numbers until one resampling renders it.

Coordinates are continuous and name edges: pixel i covers [i, i + 1), its center is i + 0.5. The two axes
never mix (no rotation), so each is described alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import cv2
import numpy as np

from boxcrew.core.boxes import clip
from boxcrew.core.types import Bools, Floats, Image

Pair = tuple[float, float]
"""(x, y)"""

_EXACT = 1e-6  # pixels; far above the rounding of float64, far below anything visible


@dataclass(frozen=True, kw_only=True)
class _Sampling:
    """The source pixels that fill one axis of the canvas, in whole pixels."""

    start: int  # canvas pixels start..stop show the source
    stop: int
    near: int  # they are made from source pixels near..near + count * reduction,
    count: int  # averaged to `count` pixels,
    reduction: int
    step: float  # of which canvas pixel start + j is centered on pixel number offset + j * step
    offset: float

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def source(self) -> slice:
        return slice(self.near, self.near + self.count * self.reduction)

    @property
    def exact(self) -> bool:
        """Return whether the averaged pixels fill the canvas pixels edge to edge: a plain resize."""
        first = (self.step if self.step > 0 else 2 * self.count + self.step) / 2 - 0.5
        span = abs(self.step) * self.size
        return abs(span - self.count) < _EXACT and abs(self.offset - first) < _EXACT


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a view: source position p appears on the canvas at p * scale + shift."""

    size: int  # of the canvas, pixels
    scale: float  # canvas pixels a source pixel; negative where the axis is mirrored
    shift: float
    low: float  # only low..high of the source is visible: the rest was cropped away
    high: float

    def then(self, *, scale: float, shift: float, size: int) -> Axis:
        """Return the axis after its canvas was scaled, then shifted, then cropped or padded to 0..size."""
        scale, shift = self.scale * scale, self.shift * scale + shift
        first, last = sorted((-shift / scale, (size - shift) / scale))
        low, high = max(self.low, first), min(self.high, last)
        return Axis(size=size, scale=scale, shift=shift, low=low, high=high)

    def of_reduced(self, reduction: int) -> Axis:
        """Return the axis for a source of which each `reduction` pixels have become one."""
        if reduction == 1:
            return self
        low, high = self.low / reduction, self.high / reduction
        return replace(self, scale=self.scale * reduction, low=low, high=high)

    @cached_property
    def sampling(self) -> _Sampling | None:
        """The pixels to read; None if nothing of the source is visible."""
        if self.high - self.low < _EXACT:
            return None
        first, last = sorted(edge * self.scale + self.shift for edge in (self.low, self.high))
        start = min(max(round(first), 0), self.size - 1)
        stop = min(max(round(last), start + 1), self.size)
        near, far = math.floor(self.low + _EXACT), math.ceil(self.high - _EXACT)
        # Below half size, bilinear sampling would step over pixels: average them first.
        reduction = max(1, min(int(1 / abs(self.scale) + _EXACT), far - near))
        return _Sampling(
            start=start,
            stop=stop,
            near=near,
            count=(far - near) // reduction,
            reduction=reduction,
            step=1 / (self.scale * reduction),
            # Both libraries number pixels by their centers, hence the two halves.
            offset=((start + 0.5 - self.shift) / self.scale - near) / reduction - 0.5,
        )


@dataclass(frozen=True, kw_only=True)
class View:
    """A source image as it appears on a canvas of `width` x `height`."""

    x: Axis
    y: Axis

    @classmethod
    def identity(cls, width: int, height: int) -> Self:
        """Return the view of a source of this size that changes nothing."""
        x, y = (Axis(size=size, scale=1.0, shift=0.0, low=0.0, high=float(size)) for size in (width, height))
        return cls(x=x, y=y)

    @property
    def width(self) -> int:
        return self.x.size

    @property
    def height(self) -> int:
        return self.y.size

    @property
    def reduction(self) -> int:
        """The factor 1, 2, 4 or 8 by which the sides of the source may be reduced in reading. Nothing is
        lost, since the canvas averages as many pixels or more.
        """
        samplings = [axis.sampling for axis in (self.x, self.y)]
        least = min(8 if sampling is None else sampling.reduction for sampling in samplings)
        return max(power for power in (1, 2, 4, 8) if power <= least)

    def then(self, *, scale: Pair = (1, 1), shift: Pair = (0, 0), size: tuple[int, int]) -> View:
        """Return the view after its canvas was scaled, then shifted, then cropped or padded to size. What is
        cropped stays invisible even if a later step pads the canvas again.
        """
        x = self.x.then(scale=scale[0], shift=shift[0], size=size[0])
        y = self.y.then(scale=scale[1], shift=shift[1], size=size[1])
        return replace(self, x=x, y=y)

    def boxes(self, boxes: Floats) -> Floats:
        """Return boxes (N, 4) of the source in pixels of the canvas; not clipped."""
        return move_boxes(boxes, scale=(self.x.scale, self.y.scale), shift=(self.x.shift, self.y.shift))

    def inverse_boxes(self, boxes: Floats) -> Floats:
        """Return boxes (N, 4) of the canvas in pixels of the source; not clipped."""
        scale = (1 / self.x.scale, 1 / self.y.scale)
        shift = (-self.x.shift / self.x.scale, -self.y.shift / self.y.scale)
        return move_boxes(boxes, scale=scale, shift=shift)

    def visible_boxes(self, boxes: Floats) -> tuple[Floats, Bools]:
        """Return the visible region of boxes (N, 4) of the source in pixels of the canvas, and (N,) whether
        it is at least 1 pixel wide and high; it is zero where it is not.
        """
        low, high = (self.x.low, self.y.low) * 2, (self.x.high, self.y.high) * 2
        moved = self.boxes(np.clip(boxes, low, high).astype(np.float32))
        moved = clip(moved, self.width, self.height)
        valid: Bools = (moved[:, 2:] - moved[:, :2]).min(axis=1) >= 1
        return np.where(valid[:, None], moved, np.float32(0)), valid

    def resample(self, image: Image, *, reduction: int = 1) -> Image:
        """Return the region of the canvas that shows the image, a new array; empty if there is none.
        `reduction` is the factor by which the sides of `image` were reduced in reading.
        """
        x, y = (axis.of_reduced(reduction).sampling for axis in (self.x, self.y))
        if x is None or y is None:
            return np.empty((0, 0, 3), dtype=np.uint8)
        region = _reduce(image[y.source, x.source], x, y)
        size = (x.size, y.size)
        if not (x.exact and y.exact):
            matrix = np.array([[x.step, 0, x.offset], [0, y.step, y.offset]])
            flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            # The edge pixels are repeated, not mixed with the fill, so that edges stay sharp when enlarged.
            warped: Image = cv2.warpAffine(region, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
            return warped
        drawn: Image = cv2.resize(region, size, interpolation=cv2.INTER_LINEAR)
        if x.step < 0 or y.step < 0:
            drawn = cv2.flip(drawn, 1 if y.step > 0 else 0 if x.step > 0 else -1)
        return drawn

    def pad(self, pixels: Image, fill: tuple[int, int, int]) -> Image:
        """Return the result of `resample` on its canvas, with `fill` around it."""
        if pixels.shape == (self.height, self.width, 3):
            return pixels
        x, y = self.x.sampling, self.y.sampling
        if x is None or y is None:
            return np.full((self.height, self.width, 3), fill, dtype=np.uint8)
        margins = (y.start, self.height - y.stop, x.start, self.width - x.stop)
        canvas: Image = cv2.copyMakeBorder(pixels, *margins, cv2.BORDER_CONSTANT, value=fill)
        return canvas


def _reduce(region: Image, x: _Sampling, y: _Sampling) -> Image:
    """Return the mean of each block of x.reduction by y.reduction pixels."""
    if x.reduction == y.reduction == 1:
        return region
    # Halving by bilinear sampling is the mean of two, and several times faster if only one axis is halved.
    halving = max(x.reduction, y.reduction) == 2
    method = cv2.INTER_LINEAR if halving else cv2.INTER_AREA
    result: Image = cv2.resize(region, (x.count, y.count), interpolation=method)
    return result


def move_boxes(boxes: Floats, *, scale: Pair, shift: Pair) -> Floats:
    """Return boxes (N, 4) scaled, then shifted. A negative scale mirrors."""
    moved = boxes * np.array(scale * 2) + np.array(shift * 2)
    if min(scale) < 0:
        low, high = np.minimum(moved[:, :2], moved[:, 2:]), np.maximum(moved[:, :2], moved[:, 2:])
        moved = np.concatenate([low, high], axis=1)
    result: Floats = moved.astype(np.float32)
    return result
