"""Default boxes are adapted to the objects: their sizes, and how fine a map they need."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from boxcrew.core.errors import UsageError
from boxcrew.detectors._anchor_adapt import AnchorLayout, adapt_layout, anchor_layouts
from boxcrew.detectors.ssdlite import SsdLiteConfig

AUTO = SsdLiteConfig(
    size=256,
    backbone="mobilenetv3_small_050",
    levels=3,
    spacing="growing",
    finest_stride="auto",
    min_scale="auto",
    max_scale="auto",
)


def objects(scale: float, spread: float = 0.2, num: int = 200) -> Tensor:
    """About square, of about that share of the image, all over it."""
    draw = torch.Generator().manual_seed(0)
    sides = scale * torch.empty(num, 2).uniform_(1 - spread, 1 + spread, generator=draw)
    corner = torch.rand(num, 2, generator=draw) * (1 - sides)
    return torch.cat([corner, corner + sides], dim=1)


def matched(config: SsdLiteConfig, boxes: Tensor) -> float:
    layout = config.layout
    return adapt_layout(boxes, [layout], config._levels_of, threshold=config.match_iou).matched


def test_small_objects_get_a_fine_map_and_large_ones_a_coarse_one() -> None:
    small, large = AUTO.adapted(objects(0.09))[0], AUTO.adapted(objects(0.5))[0]
    assert (small.finest_stride, large.finest_stride) == (8, 16)
    assert small.layout.min_scale < 0.12
    assert large.layout.min_scale > 0.3


@pytest.mark.parametrize("scale", [0.1, 0.25, 0.5])
def test_adapted_boxes_match_what_published_ones_miss(scale: float) -> None:
    boxes = objects(scale)
    adapted, note = AUTO.adapted(boxes)
    assert matched(adapted, boxes) >= max(0.9, matched(AUTO, boxes))
    assert f"adapted to {len(boxes)} objects" in note


def test_what_is_given_stays() -> None:
    fixed = AUTO.model_copy(update={"min_scale": 0.33, "finest_stride": 16})
    adapted, _ = fixed.adapted(objects(0.1))
    assert adapted.min_scale == 0.33
    assert adapted.finest_stride == 16
    assert isinstance(adapted.max_scale, float)


def test_what_is_given_is_not_even_rounded() -> None:
    fixed = AUTO.model_copy(update={"min_scale": 0.123456})
    assert fixed.adapted(objects(0.3))[0].min_scale == 0.123456


def test_a_smallest_box_as_large_as_the_input_is_refused() -> None:
    with pytest.raises(UsageError, match="min_scale"):
        SsdLiteConfig.of({"min_scale": 1.0, "max_scale": "auto"})


def test_a_given_largest_box_stays_even_below_all_objects() -> None:
    adapted, _ = AUTO.model_copy(update={"max_scale": 0.1}).adapted(objects(0.5))
    assert adapted.max_scale == 0.1
    assert adapted.layout.min_scale < 0.1


def test_with_nothing_left_open_nothing_is_done() -> None:
    config = SsdLiteConfig()
    assert config.adapted(objects(0.3)) == (config, "")


def test_without_objects_it_stays_open() -> None:
    assert AUTO.adapted(torch.zeros(0, 4)) == (AUTO, "")
    assert AUTO.layout == AnchorLayout(finest_stride=16, min_scale=0.1, max_scale=0.9)


def test_objects_of_one_size_have_default_boxes_on_both_sides() -> None:
    for layout in anchor_layouts(objects(0.3, spread=0), strides=[16]):
        assert layout.max_scale >= 1.29 * layout.min_scale


def test_the_largest_objects_still_leave_room_for_two_sizes() -> None:
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(5, 1)
    assert AUTO.adapted(whole)[0].layout.min_scale < AUTO.adapted(whole)[0].layout.max_scale
