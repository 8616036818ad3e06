from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.data.embedded.shelf.geometry import band, mirrored, points, rounded, smooth, unit_pose

SMALL = st.floats(-0.3, 0.3)


def test_an_untilted_pose_centers_and_scales_to_one() -> None:
    pose = unit_pose(points((10, 20), (110, 70)))
    corners = pose.apply(points((10, 20), (110, 70)))
    np.testing.assert_allclose(corners, [(-0.5, -0.25), (0.5, 0.25)])


@given(angle=SMALL, stretch=SMALL, along_x=SMALL, along_y=SMALL, mirror=st.booleans())
def test_a_scaled_pose_multiplies_and_moves_pixels(
    angle: float, stretch: float, along_x: float, along_y: float, mirror: bool
) -> None:
    vertices = points((0, 0), (100, 0), (70, 60), (50, 30))
    keystone = (along_x, along_y)
    pose = unit_pose(vertices, angle=angle, stretch=stretch, keystone=keystone, mirrored=mirror)
    shift = np.array([7.0, -3.0])
    np.testing.assert_allclose(pose.scaled(40, shift).apply(vertices), pose.apply(vertices) * 40 + shift)
    np.testing.assert_allclose(pose.moved(3, 5).apply(vertices), pose.apply(vertices + np.array([3, 5])))


def test_a_rotation_is_clockwise_on_the_screen() -> None:
    pose = unit_pose(points((0, 0), (100, 100)), angle=math.pi / 2)
    np.testing.assert_allclose(pose.apply(points((100, 50))), [(0.0, 0.5)], atol=1e-12)


def test_a_mirrored_shape_is_symmetric() -> None:
    shape = mirrored([(40, 0), (10, 50), (30, 100)])
    flipped = shape * (-1, 1) + (100, 0)
    assert {tuple(p) for p in shape} == {tuple(p) for p in flipped}


def test_smooth_stays_inside_and_keeps_the_middle() -> None:
    square = points((0, 0), (8, 0), (8, 8), (0, 8))
    curve = smooth(square, rounds=3)
    assert len(curve) == 32
    assert curve.min() >= 0
    assert curve.max() <= 8
    np.testing.assert_allclose(curve.mean(axis=0), (4, 4))


def test_rounded_touches_all_four_sides() -> None:
    shape = rounded(2, 3, 12, 33, 4)
    np.testing.assert_allclose(shape.min(axis=0), (2, 3))
    np.testing.assert_allclose(shape.max(axis=0), (12, 33))


@pytest.mark.parametrize("width", [1.0, 6.0])
def test_a_band_has_the_requested_width(width: float) -> None:
    shape = band(points((0, 5), (10, 5), (20, 5)), width)
    assert np.ptp(shape[:, 1]) == pytest.approx(width)
    assert np.ptp(shape[:, 0]) == pytest.approx(20)
