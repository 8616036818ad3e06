"""Points of drawings, and the pose that carries them from drawing units into pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
"""(N, 2) x, y; x to the right, y down. A drawing uses about 100 units for its longer side."""

Vertices = Sequence[tuple[float, float]]

Outline = tuple[Points, ...]
"""Closed shapes whose union is the silhouette of a drawing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pose:
    """A projective map from drawing units into pixels of a patch."""

    matrix: npt.NDArray[np.float64]  # (3, 3)
    scale: float  # pixels for one unit, near the middle

    def apply(self, points: Points) -> Points:
        mapped = points @ self.matrix[:, :2].T + self.matrix[:, 2]
        return mapped[:, :2] / mapped[:, 2:]

    def preceded(self, x: float, y: float) -> Pose:
        """The pose of the drawing moved by x, y of its own units."""
        move = np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])
        return Pose(matrix=self.matrix @ move, scale=self.scale)

    def scaled(self, factor: float, shift: Points) -> Pose:
        """The pose with its pixels multiplied, then moved by `shift` (2,)."""
        zoom = np.array([[factor, 0.0, shift[0]], [0.0, factor, shift[1]], [0.0, 0.0, 1.0]])
        return Pose(matrix=zoom @ self.matrix, scale=self.scale * factor)


@dataclass(frozen=True, kw_only=True)
class Tilt:
    """How a drawing is turned before it is placed; small numbers, all zero for none."""

    angle: float = 0.0  # radians
    stretch: float = 0.0  # of the width against the height
    keystone: tuple[float, float] = (0.0, 0.0)  # nearer at one side: along x, along y
    mirrored: bool = False


def unit_pose(low: Points, high: Points, tilt: Tilt) -> Pose:
    """Centres the drawing with bounds `low`, `high` (2,) on the origin, about a pixel long, and tilts it."""
    width, height = high - low
    scale = 1.0 / max(width, height)
    across = scale * (1.0 + tilt.stretch) * (-1.0 if tilt.mirrored else 1.0)
    middle_x, middle_y = (low + high) / 2
    centre = np.array([[across, 0.0, -middle_x * across], [0.0, scale, -middle_y * scale], [0.0, 0.0, 1.0]])
    cos, sin = math.cos(tilt.angle), math.sin(tilt.angle)
    turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [*tilt.keystone, 1.0]])
    return Pose(matrix=turn @ centre, scale=scale)


def points(*vertices: tuple[float, float]) -> Points:
    return np.array(vertices, dtype=np.float64)


def mirrored(half: Vertices, axis: float = 50.0) -> Points:
    """A shape symmetric about x = `axis`, from its left half, listed from the top to the bottom."""
    left = np.array(half, dtype=np.float64)
    right = left[::-1] * (-1.0, 1.0) + (2.0 * axis, 0.0)
    return np.concatenate([left, right])


@lru_cache(maxsize=256)
def _corner_cutter(num_points: int, rounds: int) -> npt.NDArray[np.float64]:
    """(num_points * 2**rounds, num_points): Chaikin's corner cutting of a closed line as one matrix."""
    matrix = np.eye(num_points)
    for _ in range(rounds):
        following = np.roll(matrix, -1, axis=0)
        cut = np.stack([0.75 * matrix + 0.25 * following, 0.25 * matrix + 0.75 * following], axis=1)
        matrix = cut.reshape(-1, num_points)
    return matrix


def smooth(vertices: Points, rounds: int = 2) -> Points:
    """A closed curve near the vertices; a vertex given twice is a tighter corner."""
    return _corner_cutter(len(vertices), rounds) @ vertices


@lru_cache(maxsize=8)
def _circle(num_points: int) -> Points:
    angles = np.arange(num_points) * (2 * math.pi / num_points)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def ellipse(x: float, y: float, radius_x: float, radius_y: float | None = None) -> Points:
    radii = (radius_x, radius_x if radius_y is None else radius_y)
    return _circle(28) * radii + (x, y)


def rectangle(x0: float, y0: float, x1: float, y1: float) -> Points:
    return points((x0, y0), (x1, y0), (x1, y1), (x0, y1))


@lru_cache(maxsize=1)
def _round_corners() -> tuple[Points, Points]:
    """Twenty points of a rounded rectangle: which corner each belongs to (0 or 1), and its circle's point."""
    angles = (
        np.concatenate([np.linspace(start, start + 90, 5) for start in (180, 270, 0, 90)]) * math.pi / 180
    )
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    corner = np.repeat(np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]), 5, axis=0)
    return corner, circle


def rounded(x0: float, y0: float, x1: float, y1: float, radius: float) -> Points:
    """A rectangle with round corners."""
    corner, circle = _round_corners()
    return (
        circle * radius + corner * (x1 - x0 - 2 * radius, y1 - y0 - 2 * radius) + (x0 + radius, y0 + radius)
    )


def arc(x: float, y: float, radius: tuple[float, float], degrees: tuple[float, float]) -> Points:
    """A piece of an ellipse's line, clockwise on the screen from the first angle to the second."""
    angles = np.linspace(degrees[0], degrees[1], 16) * (math.pi / 180)
    return np.stack([x + radius[0] * np.cos(angles), y + radius[1] * np.sin(angles)], axis=1)


def band(line: Points, width: float) -> Points:
    """The closed shape of a line drawn `width` wide."""
    ahead = np.empty_like(line)
    ahead[1:-1] = line[2:] - line[:-2]
    ahead[0], ahead[-1] = line[1] - line[0], line[-1] - line[-2]
    length = np.hypot(ahead[:, 0], ahead[:, 1])[:, None]
    side = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1) / length * (width / 2)
    return np.concatenate([line + side, (line - side)[::-1]])
