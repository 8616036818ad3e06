"""Box arithmetic on arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from boxcrew.core.boxes import area, centers_inside, clip, intersection, iou
from boxcrew.core.types import Floats


def boxes_of(low: float = -200, high: float = 200, *, max_count: int = 5) -> st.SearchStrategy[Floats]:
    """(N, 4) xyxy, N from 0, sides from 0."""
    corners = hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, max_count), st.just(2), st.just(2)),
        elements=st.floats(low, high, width=32),
    )
    return corners.map(lambda c: np.concatenate([c.min(axis=1), c.max(axis=1)], axis=1))


@given(boxes_of(), boxes_of())
def test_iou_is_symmetric_and_a_share(first: Floats, second: Floats) -> None:
    ratios = iou(first, second)
    assert ratios.shape == (len(first), len(second))
    assert ratios.dtype == np.float32
    np.testing.assert_array_equal(ratios, iou(second, first).T)
    assert ((ratios >= 0) & (ratios <= 1)).all()


@given(boxes_of())
def test_iou_with_itself_is_one_where_there_is_an_area(boxes: Floats) -> None:
    np.testing.assert_array_equal(np.diag(iou(boxes, boxes)), (area(boxes) > 0).astype(np.float32))


@given(boxes_of(), boxes_of())
def test_what_is_shared_is_no_more_than_either(first: Floats, second: Floats) -> None:
    shared = intersection(first, second)
    assert (shared <= area(first)[:, None]).all()
    assert (shared <= area(second)[None, :]).all()


def test_iou_by_hand() -> None:
    first = np.array([[0, 0, 10, 10], [0, 0, 0, 0]], dtype=np.float32)
    second = np.array([[5, 0, 15, 10], [2, 2, 4, 4], [10, 0, 20, 10], [0, 0, 0, 0]], dtype=np.float32)
    wanted = np.array([[1 / 3, 0.04, 0, 0], [0, 0, 0, 0]], dtype=np.float32)
    np.testing.assert_allclose(iou(first, second), wanted, rtol=1e-6)


@given(boxes_of(), st.floats(1, 100, width=32), st.floats(1, 100, width=32))
def test_clipping_twice_is_clipping_once(boxes: Floats, width: float, height: float) -> None:
    before = boxes.copy()
    once = clip(boxes, width, height)
    np.testing.assert_array_equal(clip(once, width, height), once)
    np.testing.assert_array_equal(boxes, before)
    assert ((once >= 0) & (once <= [width, height, width, height])).all()
    image = np.array([[0, 0, width, height]], dtype=np.float32)
    np.testing.assert_array_equal(area(once), intersection(boxes, image)[:, 0])


def test_a_box_that_is_inside_out_has_no_area() -> None:
    assert area(np.array([[5, 5, 3, 9], [0, 0, 2, 3]], dtype=np.float32)).tolist() == [0, 6]


def test_centers_on_the_edge_are_not_inside() -> None:
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [-1, -1, 1, 1], [8, 8, 12, 12]], dtype=np.float32)
    assert centers_inside(boxes, (0, 0, 10, 10)).tolist() == [True, True, False, False]
