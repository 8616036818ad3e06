"""The brush that paints a drawing, defined in drawing units, into a small patch of pixels."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Image
from boxcrew.data.embedded.shelf.geometry import Points, Pose

Color = tuple[float, float, float]
"""Red, green and blue, each 0..255."""

Mask = npt.NDArray[np.uint8]
"""(height, width) coverage of each pixel, 0..255."""

_SHIFT = 4  # OpenCV's fixed point: sixteenths of a pixel
WHITE: Color = (246.0, 245.0, 242.0)
INK: Color = (38.0, 38.0, 44.0)


def hsv(hue: float, saturation: float, value: float) -> Color:
    """Convert hue, saturation and value, all 0..1, to a color; the hue wraps around."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
    return 255 * red, 255 * green, 255 * blue


def mix(first: Color, second: Color, amount: float) -> Color:
    """Blend two colors; `amount` 0..1 is the share of the second."""
    keep = 1.0 - amount
    red, green, blue = (a * keep + b * amount for a, b in zip(first, second, strict=True))
    return red, green, blue


def darker(color: Color, amount: float = 0.25) -> Color:
    return mix(color, (20.0, 18.0, 30.0), amount)


def lighter(color: Color, amount: float = 0.3) -> Color:
    return mix(color, (255.0, 253.0, 246.0), amount)


def luminance(color: Color) -> float:
    """Return the brightness of a color, 0..255."""
    return 0.3 * color[0] + 0.59 * color[1] + 0.11 * color[2]


def _fixed_point(pixels: Points) -> npt.NDArray[np.int32]:
    # OpenCV counts from pixel centers, boxes from pixel edges: they differ by half a pixel.
    return np.rint((pixels - 0.5) * (1 << _SHIFT)).astype(np.int32)


def _fill(canvas: npt.NDArray[np.uint8], polygons: Iterable[Points], color: Sequence[float] | float) -> None:
    """Paint polygons (pixel coordinates, counted from edges, not centers) with anti-aliased edges."""
    for polygon in polygons:
        cv2.fillPoly(canvas, [_fixed_point(polygon)], color, lineType=cv2.LINE_AA, shift=_SHIFT)


def silhouette(vertices: Points, lengths: Iterable[int], width: int, height: int) -> Mask:
    """Return the coverage of the union of polygons: all vertices in pixels, and how many each has."""
    mask = np.zeros((height, width), dtype=np.uint8)
    _fill(mask, np.split(vertices, np.cumsum([*lengths])[:-1]), 255)
    return mask


class Brush:
    """Paints one item. Paint outside the item's silhouette does not show."""

    def __init__(self, patch: Image, pose: Pose, rng: np.random.Generator) -> None:
        self._patch, self._pose, self.rng = patch, pose, rng
        self.fine = pose.scale > 0.35  # whether a unit is large enough to show small details

    def fill(self, color: Color, *polygons: Points) -> None:
        _fill(self._patch, map(self._pose.apply, polygons), color)

    def line(self, color: Color, width: float, *lines: Points) -> None:
        """Draw open lines, `width` units wide but at least one pixel."""
        pen = max(1, round(width * self._pose.scale))
        fixed = [_fixed_point(self._pose.apply(line)) for line in lines]
        cv2.polylines(self._patch, fixed, False, color, pen, cv2.LINE_AA, _SHIFT)  # noqa: FBT003 - not closed

    def moved(self, x: float, y: float) -> Brush:
        """Return a brush for the same patch whose drawing is moved by x, y units."""
        return Brush(self._patch, self._pose.moved(x, y), self.rng)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()

    def pick(self, number: int) -> int:
        """Return a random integer 0..number-1."""
        return int(self.rng.random() * number)

    def color(
        self, saturation: tuple[float, float] = (0.35, 0.85), value: tuple[float, float] = (0.45, 0.95)
    ) -> Color:
        """Return a color of any hue."""
        return hsv(self.rng.random(), self.between(*saturation), self.between(*value))

    def gray(self, low: float = 0.1, high: float = 0.95) -> Color:
        """Return a nearly neutral color of that brightness."""
        return hsv(self.rng.random(), 0.06, self.between(low, high))

    def fabric(self) -> Color:
        """Return a color for clothes: mostly saturated, some neutral."""
        return self.gray(0.15, 0.95) if self.chance(0.25) else self.color((0.25, 0.8), (0.35, 0.95))

    def casing(self) -> Color:
        """Return a color for the case of a device: mostly dark or light neutral, some saturated."""
        kind = self.rng.random()
        if kind < 0.45:
            return self.gray(0.12, 0.25)
        return self.gray(0.7, 0.95) if kind < 0.75 else self.color((0.3, 0.7), (0.4, 0.85))
