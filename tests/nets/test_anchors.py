"""Default boxes are the paper's, and the box code is its own inverse."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.ops import box_iou

from boxcrew.nets.anchors import (
    MAX_GROWTH,
    BoxCoder,
    Level,
    best_ious,
    default_boxes,
    paper_shapes,
    to_xyxy,
)

# Caffe's SSD: side of the map, step, smallest and largest side of its boxes, ratios.
SSD300 = [
    (38, 8, 30, 60, (2,)),
    (19, 16, 60, 111, (2, 3)),
    (10, 32, 111, 162, (2, 3)),
    (5, 64, 162, 213, (2, 3)),
    (3, 100, 213, 264, (2,)),
    (1, 300, 264, 315, (2,)),
]


def ssd300_levels() -> list[Level]:
    return [
        Level(
            height=side,
            width=side,
            step=(step / 300, step / 300),
            shapes=paper_shapes(low / 300, high / 300, ratios),
        )
        for side, step, low, high, ratios in SSD300
    ]


def test_a_cell_has_two_squares_and_two_boxes_for_each_ratio() -> None:
    shapes = paper_shapes(0.1, 0.4, (2, 3))
    assert shapes == pytest.approx(
        [
            pytest.approx(pair)
            for pair in (
                (0.1, 0.1),
                (0.2, 0.2),
                (0.1 * 2**0.5, 0.1 / 2**0.5),
                (0.1 / 2**0.5, 0.1 * 2**0.5),
                (0.1 * 3**0.5, 0.1 / 3**0.5),
                (0.1 / 3**0.5, 0.1 * 3**0.5),
            )
        ]
    )
    assert all(w * h == pytest.approx(0.01) for w, h in shapes[2:])


def test_the_first_and_last_boxes_of_ssd300_by_hand() -> None:
    boxes = default_boxes(ssd300_levels(), size=300)
    assert boxes.shape == (8732, 4)
    root = 2**0.5
    first = [(4, 4, 30, 30), (4, 4, 1800**0.5, 1800**0.5), (4, 4, 30 * root, 30 / root)]
    torch.testing.assert_close(boxes[:3], torch.tensor(first))
    torch.testing.assert_close(boxes[4, :2], torch.tensor([12.0, 4.0]))  # x runs before y
    torch.testing.assert_close(boxes[38 * 4, :2], torch.tensor([4.0, 12.0]))
    # The single cell of the last map: no box is wider than the image.
    last = [(150, 150, 264, 264), (150, 150, 288.3747, 288.3747), (150, 150, 300, 264 / root)]
    torch.testing.assert_close(boxes[-4:-1], torch.tensor(last))
    torch.testing.assert_close(boxes[-1], torch.tensor([150, 150, 264 / root, 300]))


def test_maps_need_not_be_square() -> None:
    level = Level(height=2, width=3, step=(1 / 3, 1 / 2), shapes=((0.5, 0.25),))
    boxes = default_boxes([level], size=60)
    centers = [(10.0, 15.0), (30, 15), (50, 15), (10, 45), (30, 45), (50, 45)]
    torch.testing.assert_close(boxes, torch.tensor([(x, y, 30.0, 15.0) for x, y in centers]))


def pairs() -> st.SearchStrategy[tuple[Tensor, Tensor]]:
    """A box xyxy from 0.5 to 300 px wide and a default box, no more than 60 times smaller."""
    side = st.floats(5, 300, width=32)
    place = st.floats(0, 300, width=32)
    box = st.tuples(place, place, st.floats(0.5, 300, width=32), st.floats(0.5, 300, width=32))
    return st.tuples(
        box.map(lambda b: torch.tensor([b[0], b[1], b[0] + b[2], b[1] + b[3]])),
        st.tuples(place, place, side, side).map(torch.tensor),
    )


@given(pairs())
@settings(max_examples=100)
def test_decoding_undoes_encoding(pair: tuple[Tensor, Tensor]) -> None:
    box, anchor = pair
    code = BoxCoder()
    torch.testing.assert_close(code.decode(code.encode(box, anchor), anchor), box, rtol=1e-4, atol=5e-3)


def test_offsets_by_hand() -> None:
    # Section 2.2, equation 2: shifts in widths and heights, sizes in logarithms, divided by 0.1 and 0.2.
    box, anchor = torch.tensor([10.0, 20, 30, 60]), torch.tensor([15.0, 45, 10, 20])
    wanted = torch.tensor([5 / 10 / 0.1, -5 / 20 / 0.1, 0.693147 / 0.2, 0.693147 / 0.2])
    torch.testing.assert_close(BoxCoder().encode(box, anchor), wanted)


def test_a_box_equal_to_its_default_box_has_no_offset() -> None:
    anchors = default_boxes(ssd300_levels(), size=300)
    offsets = BoxCoder().encode(to_xyxy(anchors), anchors)
    torch.testing.assert_close(offsets, torch.zeros_like(anchors), rtol=0, atol=1e-4)


def test_wild_offsets_decode_to_finite_boxes() -> None:
    anchors = torch.tensor([[10.0, 10, 20, 20]])
    boxes = BoxCoder().decode(torch.tensor([[0.0, 0, 1e4, -1e4]]), anchors)
    assert boxes.isfinite().all()
    assert float(boxes[0, 2] - boxes[0, 0]) == pytest.approx(20 * 62.5, rel=1e-3)
    assert pytest.approx(4.13517, abs=1e-3) == MAX_GROWTH


def test_the_best_overlap_is_found_without_looking_at_all() -> None:
    """Also of boxes at the rim, larger than any default box, and smaller."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand((2000, 2, 2), generator=generator).sort(dim=1).values
    boxes = corners.reshape(-1, 4)
    boxes[:500, 2:] = boxes[:500, :2] + 0.02
    boxes[500] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    levels = ssd300_levels()
    every = box_iou(boxes, to_xyxy(default_boxes(levels, size=1))).amax(dim=1)
    torch.testing.assert_close(best_ious(boxes, levels), every)
