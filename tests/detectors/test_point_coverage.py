"""Which objects the boxes of anchor points can fit."""

from __future__ import annotations

import math

import pytest
import torch

from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Target
from boxcrew.detectors import anchor_coverage
from boxcrew.detectors._points import best_point_iou
from boxcrew.detectors.picodet import PicoDetConfig
from boxcrew.detectors.yolo import YoloConfig
from boxcrew.evaluate.advice import unmatched_objects

SIDE = 64


def by_hand(box: list[float], stride: int, reach: float) -> float:
    """Return the best IoU over all points of a map, each with the box nearest to the object."""
    best = 0.0
    for row in range(SIDE // stride):
        for column in range(SIDE // stride):
            sides = []
            for low, high, cell in ((box[0], box[2], column), (box[1], box[3], row)):
                center = (cell + 0.5) * stride
                start, end = max(min(low, center), center - reach), min(max(high, center), center + reach)
                sides.append((end - start, max(0.0, min(end, high) - max(start, low)), high - low))
            made, shared, wanted = (math.prod(values) for values in zip(*sides, strict=True))
            best = max(best, shared / (made + wanted - shared))
    return best


@pytest.mark.parametrize("max_strides", [math.inf, 3.0])
def test_the_best_of_all_points_counts(max_strides: float) -> None:
    draw = torch.Generator().manual_seed(0)
    low = torch.rand(40, 2, generator=draw, dtype=torch.float64) * 50
    boxes = torch.cat((low, low + 1 + torch.rand(40, 2, generator=draw, dtype=torch.float64) * 13), dim=1)
    ours = best_point_iou(boxes, (8, 16), InputSize((SIDE,)), max_strides=max_strides)
    expected = [
        max(by_hand(box, stride, max_strides * stride) for stride in (8, 16)) for box in boxes.tolist()
    ]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64))
    assert 0.02 < float(ours.min()) < 0.9
    assert float(ours.max()) == 1


def test_tiny_objects_are_lost_and_a_larger_input_is_advised() -> None:
    targets = [Target.of([[10, 10, 26, 26], [60, 61, 63, 64]], [0, 0])] * 4
    report = anchor_coverage(YoloConfig(size=128), ("jug",), targets, [(256, 256)] * 4)
    assert report is not None
    assert report.matched_fraction == 0.5
    assert report.advice.startswith("the points of yolo at size=128 can match 50 % of 8 boxes well")
    assert "size=" in report.advice.partition("well")[2]


def test_all_usual_objects_are_in_reach_of_picodet() -> None:
    targets = [Target.of([[0, 0, 640, 640], [100, 100, 140, 160]], [0, 0])]
    report = anchor_coverage(PicoDetConfig(size=256), ("jug",), targets, [(640, 640)])
    assert report is not None
    assert report.matched_fraction == 1


def test_a_run_is_warned_with_the_share() -> None:
    (advice,) = unmatched_objects(0.4, learned_from="points", detector="yolo at size=128")
    assert str(advice).startswith("60% of the objects fit none of the points of yolo at size=128 well: ")
    assert unmatched_objects(0.9, learned_from="points", detector="yolo at size=128") == ()
