"""The bounding boxes of the shapes that annotation tools draw: polygons, ellipses and rotated rectangles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from boxcrew.data.checks.box_repair import Box

Point = tuple[float, float]


def parse_number(value: object) -> float:
    """Return a number of a JSON or XML file, or raise `ValueError`."""
    try:
        return float(str(value))  # neither true nor null is a number
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is not a number") from None


def parse_points(value: object) -> list[Point]:
    """Return the points of a list of x, y pairs, or raise `ValueError`. They must be two or more."""
    if not isinstance(value, list) or len(value) < 2:
        raise ValueError("it has fewer than two points")
    points = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"{pair} is not a point")
        points.append((parse_number(pair[0]), parse_number(pair[1])))
    return points


def bounding_box(points: Sequence[Point]) -> Box:
    """Return the smallest box around the points. If a number is not finite, no side is a number, because
    `min` and `max` would hide it.
    """
    if not all(math.isfinite(value) for point in points for value in point):
        return math.nan, math.nan, math.nan, math.nan
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def corners(box: Box) -> list[Point]:
    x0, y0, x1, y1 = box
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def rotate(points: Iterable[Point], degrees: float, center: Point) -> list[Point]:
    """Return the points rotated around the center, clockwise as an image is seen (y points down)."""
    angle = _radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    x0, y0 = center
    return [(x0 + (x - x0) * cos - (y - y0) * sin, y0 + (x - x0) * sin + (y - y0) * cos) for x, y in points]


def ellipse_box(center: Point, radii: Point, degrees: float = 0.0) -> Box:
    """Return the smallest box around an ellipse that is rotated around its center."""
    (x, y), (rx, ry), angle = center, radii, _radians(degrees)
    width = math.hypot(rx * math.cos(angle), ry * math.sin(angle))
    height = math.hypot(rx * math.sin(angle), ry * math.cos(angle))
    return x - width, y - height, x + width, y + height


def _radians(degrees: float) -> float:
    if not math.isfinite(degrees):
        raise ValueError(f"its rotation is {degrees}")
    return math.radians(degrees)
