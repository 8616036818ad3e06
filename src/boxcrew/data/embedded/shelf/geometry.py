"""Points of drawings, and the pose that maps them from drawing units to pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
"""(N, 2) of x to the right and y down. The longer side of a drawing has about 100 units."""

Outline = tuple[Points, ...]
"""Closed shapes whose union is the silhouette of a drawing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pose:
    """A projective map from drawing units to pixels of a patch."""

    matrix: npt.NDArray[np.float64]  # (3, 3)
    scale: float  # pixels per unit, near the middle

    def apply(self, points: Points) -> Points:
        mapped = points @ self.matrix[:, :2].T + self.matrix[:, 2]
        return mapped[:, :2] / mapped[:, 2:]

    def moved(self, x: float, y: float) -> Pose:
        """Return the pose of the drawing moved by x, y units."""
        move = np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])
        return Pose(matrix=self.matrix @ move, scale=self.scale)

    def scaled(self, factor: float, shift: Points) -> Pose:
        """Return the pose with its pixels multiplied by `factor`, then moved by `shift` (2,)."""
        zoom = np.array([[factor, 0.0, shift[0]], [0.0, factor, shift[1]], [0.0, 0.0, 1.0]])
        return Pose(matrix=zoom @ self.matrix, scale=self.scale * factor)


def unit_pose(
    vertices: Points,
    *,
    angle: float = 0.0,
    stretch: float = 0.0,
    keystone: tuple[float, float] = (0.0, 0.0),
    mirrored: bool = False,
) -> Pose:
    """Return a pose that centers a drawing on the origin, about 1 pixel long: rotated by an angle in radians,
    its width grown by the share `stretch`, with perspective along x and y.
    """
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    scale = 1.0 / max(high - low)
    across = scale * (1.0 + stretch) * (-1.0 if mirrored else 1.0)
    middle_x, middle_y = (low + high) / 2
    center = np.array([[across, 0.0, -middle_x * across], [0.0, scale, -middle_y * scale], [0.0, 0.0, 1.0]])
    cos, sin = math.cos(angle), math.sin(angle)
    turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [*keystone, 1.0]])
    return Pose(matrix=turn @ center, scale=scale)


def points(*vertices: tuple[float, float]) -> Points:
    return np.array(vertices, dtype=np.float64)


def mirrored(half: Sequence[tuple[float, float]]) -> Points:
    """Return the shape symmetric about x = 50 whose left half is given from top to bottom."""
    left = points(*half)
    return np.concatenate([left, left[::-1] * (-1.0, 1.0) + (100.0, 0.0)])


@lru_cache(maxsize=256)
def _corner_cutter(num_points: int, rounds: int) -> npt.NDArray[np.float64]:
    """Return Chaikin's corner cutting of a closed line as a matrix (num_points * 2**rounds, num_points)."""
    matrix = np.eye(num_points)
    for _ in range(rounds):
        next_points = np.roll(matrix, -1, axis=0)
        cut = np.stack([0.75 * matrix + 0.25 * next_points, 0.25 * matrix + 0.75 * next_points], axis=1)
        matrix = cut.reshape(-1, num_points)
    return matrix


def smooth(vertices: Points, rounds: int = 2) -> Points:
    """Return a closed curve near the vertices; a vertex listed twice makes a tighter corner."""
    return _corner_cutter(len(vertices), rounds) @ vertices


def symmetric(half: Sequence[tuple[float, float]]) -> Points:
    """Return `smooth` of the shape whose left half is given, as for `mirrored`."""
    return smooth(mirrored(half))


def curve(*vertices: tuple[float, float], rounds: int = 2) -> Points:
    """Return `smooth` of these vertices."""
    return smooth(points(*vertices), rounds)


def _on_circle(angles: npt.ArrayLike) -> Points:
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


_CIRCLE = _on_circle(np.arange(28) * (2 * math.pi / 28))


def ellipse(x: float, y: float, radius_x: float, radius_y: float | None = None) -> Points:
    return _CIRCLE * (radius_x, radius_x if radius_y is None else radius_y) + (x, y)


def rect(x0: float, y0: float, x1: float, y1: float) -> Points:
    return points((x0, y0), (x1, y0), (x1, y1), (x0, y1))


# Of each of the 20 points of a rounded rectangle: its corner, and its place on the circle there.
_CORNERS = np.repeat(rect(0, 0, 1, 1), 5, axis=0)
_QUARTERS = np.concatenate([np.linspace(start, start + 90, 5) for start in (180, 270, 0, 90)])
_CORNER_CIRCLE = _on_circle(_QUARTERS * math.pi / 180)


def rounded(x0: float, y0: float, x1: float, y1: float, radius: float) -> Points:
    """Return a rectangle with round corners."""
    straight = (x1 - x0 - 2 * radius, y1 - y0 - 2 * radius)
    return _CORNER_CIRCLE * radius + _CORNERS * straight + (x0 + radius, y0 + radius)


def arc(x: float, y: float, radius: tuple[float, float], degrees: tuple[float, float]) -> Points:
    """Return an arc of an ellipse, clockwise on the screen from the first angle to the second."""
    return _on_circle(np.linspace(*degrees, 16) * (math.pi / 180)) * radius + (x, y)


def spoke(angle: float, inner: float, outer: float) -> Points:
    """Return the line from `inner` to `outer` units away from (50, 50), at an angle in radians."""
    c, s = math.cos(angle), math.sin(angle)
    return points((50 + inner * c, 50 + inner * s), (50 + outer * c, 50 + outer * s))


def band(line: Points, width: float) -> Points:
    """Return the closed shape of a line drawn `width` wide."""
    tangent = np.empty_like(line)
    tangent[1:-1] = line[2:] - line[:-2]
    tangent[0], tangent[-1] = line[1] - line[0], line[-1] - line[-2]
    length = np.hypot(tangent[:, 0], tangent[:, 1])[:, None]
    side = np.stack([-tangent[:, 1], tangent[:, 0]], axis=1) / length * (width / 2)
    return np.concatenate([line + side, (line - side)[::-1]])
