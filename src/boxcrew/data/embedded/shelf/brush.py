"""The brush that paints a drawing, given in its own units, into a small patch of pixels."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Image
from boxcrew.data.embedded.shelf.geometry import Points, Pose

Colour = tuple[float, float, float]
"""Red, green, blue, 0..255."""

Mask = npt.NDArray[np.uint8]
"""(height, width) cover of each pixel, 0..255."""

_SHIFT = 4  # OpenCV's fixed point: sixteenths of a pixel
WHITE: Colour = (246.0, 245.0, 242.0)
INK: Colour = (38.0, 38.0, 44.0)


def hsv(hue: float, saturation: float, value: float) -> Colour:
    """All 0..1; the hue wraps around."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
    return 255 * red, 255 * green, 255 * blue


def mix(first: Colour, second: Colour, part: float) -> Colour:
    """`part` of the second in the first."""
    keep = 1.0 - part
    return (
        first[0] * keep + second[0] * part,
        first[1] * keep + second[1] * part,
        first[2] * keep + second[2] * part,
    )


def darker(colour: Colour, part: float = 0.25) -> Colour:
    return mix(colour, (20.0, 18.0, 30.0), part)


def lighter(colour: Colour, part: float = 0.3) -> Colour:
    return mix(colour, (255.0, 253.0, 246.0), part)


def luminance(colour: Colour) -> float:
    """0..255."""
    return 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]


def _fixed_point(pixels: Points) -> npt.NDArray[np.int32]:
    # OpenCV counts from pixel centres, boxes count from pixel edges: half a pixel between them.
    return np.rint((pixels - 0.5) * (1 << _SHIFT)).astype(np.int32)


def fill(canvas: npt.NDArray[np.uint8], polygons: Iterable[Points], colour: Sequence[float] | float) -> None:
    """Paints polygons (in pixels, edges not centres) with smooth edges, one after another."""
    for polygon in polygons:
        cv2.fillPoly(canvas, [_fixed_point(polygon)], colour, lineType=cv2.LINE_AA, shift=_SHIFT)


def silhouette(vertices: Points, lengths: Iterable[int], width: int, height: int) -> Mask:
    """The cover of the union of polygons: their vertices in pixels, all together, and how many each has."""
    mask = np.zeros((height, width), dtype=np.uint8)
    fixed, start = _fixed_point(vertices), 0
    for length in lengths:
        polygon = fixed[start : start + length]
        cv2.fillPoly(mask, [polygon], 255, lineType=cv2.LINE_AA, shift=_SHIFT)
        start += length
    return mask


class Brush:
    """Paints one item. What it paints outside the item's silhouette is not seen."""

    def __init__(self, patch: Image, pose: Pose, rng: np.random.Generator) -> None:
        self._patch = patch
        self._pose = pose
        self.rng = rng
        self.fine = pose.scale > 0.35  # whether one unit is large enough for small details to be seen

    def fill(self, colour: Colour, *polygons: Points) -> None:
        fill(self._patch, map(self._pose.apply, polygons), colour)

    def line(self, colour: Colour, width: float, *lines: Points) -> None:
        """Open lines, `width` units wide, at least one pixel."""
        thickness = max(1, round(width * self._pose.scale))
        fixed = [_fixed_point(self._pose.apply(line)) for line in lines]
        cv2.polylines(
            self._patch,
            fixed,
            isClosed=False,
            color=colour,
            thickness=thickness,
            lineType=cv2.LINE_AA,
            shift=_SHIFT,
        )

    def moved(self, x: float, y: float) -> Brush:
        """A brush for the same patch whose drawing is moved by x, y units."""
        return Brush(self._patch, self._pose.preceded(x, y), self.rng)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()

    def pick(self, number: int) -> int:
        """0..number-1."""
        return int(self.rng.random() * number)

    def colour(
        self, saturation: tuple[float, float] = (0.35, 0.85), value: tuple[float, float] = (0.45, 0.95)
    ) -> Colour:
        """Any hue."""
        return hsv(self.rng.random(), self.between(*saturation), self.between(*value))

    def grey(self, low: float = 0.1, high: float = 0.95) -> Colour:
        """A neutral colour of that brightness, with a breath of a hue."""
        return hsv(self.rng.random(), 0.06, self.between(low, high))

    def fabric(self) -> Colour:
        """What clothes are dyed: mostly colours, some neutral."""
        return self.grey(0.15, 0.95) if self.chance(0.25) else self.colour((0.25, 0.8), (0.35, 0.95))

    def casing(self) -> Colour:
        """What devices are cased in: mostly dark or light neutral, some coloured."""
        kind = self.rng.random()
        if kind < 0.45:
            return self.grey(0.12, 0.25)
        return self.grey(0.7, 0.95) if kind < 0.75 else self.colour((0.3, 0.7), (0.4, 0.85))
