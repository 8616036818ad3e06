"""Boxes are repaired or left out, never kept broken."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.data.checks.box_repair import Box, clip_clean, is_inside, repair, rotate_box, show_box

SIDES = st.integers(1, 10_000)
ANY_BOX = st.tuples(*[st.floats(width=64) for _ in range(4)])
NEAR_BOX = st.tuples(*[st.floats(-50, 150, width=32) for _ in range(4)])


@given(box=ANY_BOX | NEAR_BOX, width=SIDES, height=SIDES)
def test_what_is_kept_is_a_box_inside_the_image(box: Box, width: int, height: int) -> None:
    kept, faults = repair(box, width, height)
    if kept is None:
        assert len(faults) == 1
        return
    x0, y0, x1, y1 = np.array(kept, dtype=np.float32)
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    assert repair(kept, width, height) == (kept, [])


@given(boxes=st.lists(ANY_BOX | NEAR_BOX, max_size=8), width=SIDES, height=SIDES)
def test_boxes_that_are_clean_in_a_table_need_no_repair(boxes: list[Box], width: int, height: int) -> None:
    table = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    with np.errstate(invalid="ignore", over="ignore"):
        clipped, clean = clip_clean(table, np.tile([[float(width), height]], (len(boxes), 1)))
    for box, inside, is_clean in zip(boxes, clipped.tolist(), clean, strict=True):
        if is_clean:
            assert repair(box, width, height) == (tuple(inside), [])


def test_ordinary_boxes_are_clean() -> None:
    boxes = np.array([[0, 0, 100, 80], [-0.5, 3, 20, 80.5], [5, 5, 6, 6], [5, 5, 3, 9], [-2, 5, 9, 9]])
    _, clean = clip_clean(boxes, np.tile([[100.0, 80.0]], (5, 1)))
    assert clean.tolist() == [True, True, True, False, False]


@given(box=NEAR_BOX)
def test_only_what_touches_the_image_with_some_area_is_kept(box: Box) -> None:
    x0, x1 = sorted((box[0], box[2]))
    y0, y1 = sorted((box[1], box[3]))
    touches = max(x0, 0) < min(x1, 100) and max(y0, 0) < min(y1, 100)
    assert (repair(box, 100, 100)[0] is not None) == touches


@given(x=st.floats(0, 50, width=32), y=st.floats(0, 50, width=32), side=st.floats(1, 50, width=32))
def test_a_good_box_is_not_touched(x: float, y: float, side: float) -> None:
    box = (x, y, x + side, y + side)
    assert repair(box, 100, 100) == (box, [])
    assert repair((box[2], box[3], box[0], box[1]), 100, 100)[0] == box


@pytest.mark.parametrize(
    ("box", "kept", "kinds"),
    [
        ((0, 0, 100, 80), (0, 0, 100, 80), []),
        ((-1, -1, 101, 81), (0, 0, 100, 80), []),
        ((-1.5, 5, 20, 20), (0, 5, 20, 20), ["box-overhang"]),
        ((5, 5, 20, 84), (5, 5, 20, 80), ["box-overhang"]),
        ((5, 5, 20, 300), (5, 5, 20, 80), ["box-larger-than-image"]),
        ((-50, -50, 500, 500), (0, 0, 100, 80), ["box-larger-than-image"]),
        ((20, 5, 5, 20), (5, 5, 20, 20), ["box-swapped"]),
        ((20, 5, 5, 83), (5, 5, 20, 80), ["box-swapped", "box-overhang"]),
        ((5, 5, 5, 20), None, ["box-empty"]),
        ((5, 5, 5 + 1e-12, 20), None, ["box-empty"]),
        ((200, 5, 300, 20), None, ["box-outside"]),
        ((100, 5, 110, 20), None, ["box-outside"]),
        ((math.nan, 5, 30, 20), None, ["box-nan"]),
        ((0, 5, math.inf, 20), None, ["box-nan"]),
    ],
)
def test_each_fault_is_named(box: Box, kept: Box | None, kinds: list[str]) -> None:
    result, faults = repair(box, 100, 80)
    assert result == kept
    assert [kind for kind, _ in faults] == kinds
    assert all(f"box {show_box(box)} " in message for _, message in faults)


@given(box=NEAR_BOX, orientation=st.integers(5, 8))
def test_a_rotated_box_is_inside_where_the_stored_one_was(box: Box, orientation: int) -> None:
    rotated = rotate_box(box, orientation, 80, 100)
    assert is_inside(rotated, 80, 100) == is_inside(box, 100, 80)
