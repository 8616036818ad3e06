"""Bounding boxes of shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from boxcrew.data.detection.shapes import (
    bounding_box,
    corners,
    ellipse_box,
    parse_number,
    parse_points,
    rotate,
)


def test_a_quarter_turn_is_clockwise_in_an_image() -> None:
    assert rotate([(2, 0)], 90, (0, 0)) == [pytest.approx((0, 2))]  # from the right to the bottom
    box = bounding_box(rotate(corners((0, 0, 4, 2)), 90, (2, 1)))
    assert box == pytest.approx((1, -1, 3, 3))


def test_the_box_of_a_rotated_ellipse_touches_it() -> None:
    angles = np.linspace(0, 2 * math.pi, 100_000)
    points = list(zip(10 + 5 * np.cos(angles), 20 + 2 * np.sin(angles), strict=True))
    wanted = bounding_box(rotate([(float(x), float(y)) for x, y in points], 30, (10, 20)))
    assert ellipse_box((10, 20), (5, 2), 30) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_not_hidden_by_the_others(bad: float) -> None:
    assert all(map(math.isnan, bounding_box([(1, 2), (bad, 3), (4, 5)])))


def test_numbers() -> None:
    assert [parse_number(value) for value in (3, 2.5, " 1e2 ")] == [3, 2.5, 100]
    bad: tuple[object, ...] = (None, True, [], {}, "", "x")
    for value in bad:
        with pytest.raises(ValueError, match="is not a number"):
            parse_number(value)


@pytest.mark.parametrize(
    "value", [None, [], [[1, 2]], "1,2;3,4", [[1, 2], [3]], [[1, 2], 3], [[1, 2], ["x", 4]]]
)
def test_damaged_points(value: object) -> None:
    with pytest.raises(ValueError):
        parse_points(value)
