"""Which boxes the default boxes can match, and whether the advice about the others is true."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor

from boxcrew.core.types import Batch, Losses, Target
from boxcrew.data.detection.source import open_source
from boxcrew.data.transforms.pipeline import TransformsConfig
from boxcrew.detectors import _anchor_coverage as module
from boxcrew.detectors._anchor_coverage import AnchorCoverage, anchor_coverage
from boxcrew.detectors._base import Candidates, DetectorConfig, DetectorNet, build_detector
from boxcrew.detectors._objects import counted_objects
from boxcrew.detectors.ssd import SsdConfig
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.nets.anchors import to_xyxy
from boxcrew.nets.network import ClassRows
from boxcrew.testing.detectors import CLASSES
from tests.helpers.tiny import BACKBONE

SMALL = SsdLiteConfig(size=128, backbone=BACKBONE, finest_stride=8, levels=4)


def grid(side: float, *, ratio: float = 1.0, image: tuple[int, int] = (128, 128), num: int = 6) -> Target:
    """Boxes of this side (the root of the area) and ratio of width to height, all over the image."""
    width, height = side * ratio**0.5, side / ratio**0.5
    xs = np.linspace(0, image[0] - width, num)
    ys = np.linspace(0, image[1] - height, num)
    boxes = [(x, y, x + width, y + height) for x in xs for y in ys]
    return Target.of(boxes, [0] * len(boxes))


def coverage(
    config: DetectorConfig, *targets: Target, transforms: TransformsConfig | None = None
) -> AnchorCoverage:
    report = anchor_coverage(config, CLASSES, targets, [(128, 128)] * len(targets), transforms=transforms)
    assert report is not None
    return report


def test_default_boxes_overlap_themselves_wholly(small: SsdLite) -> None:
    boxes = to_xyxy(small.anchors)[::7]
    overlaps = small.best_anchor_iou(boxes)
    torch.testing.assert_close(overlaps, torch.ones(len(boxes)))
    far = small.best_anchor_iou(boxes + 1000)
    assert torch.equal(far, torch.zeros(len(boxes)))
    assert small.best_anchor_iou(boxes[:0]).shape == (0,)


@pytest.mark.parametrize("config", [SMALL, SsdConfig()])
def test_the_network_without_weights_has_the_same_default_boxes(config: DetectorConfig) -> None:
    real = build_detector(config, CLASSES)
    with torch.device("meta"):
        bare = build_detector(config, CLASSES)
    assert torch.equal(real.get_buffer("anchors"), bare.get_buffer("anchors"))
    assert {value.device.type for value in bare.parameters()} == {"meta"}


def test_boxes_like_the_default_boxes_are_all_matched() -> None:
    report = coverage(SMALL, grid(40), grid(64))
    assert (report.matched_fraction, report.num_boxes, len(report.lost), report.smallest_side) == (
        1.0,
        72,
        0,
        None,
    )
    assert report.advice.endswith("can match 100 % of 72 boxes well (IoU 0.5 or more)")


def test_lost_boxes_are_named_by_their_place_among_all() -> None:
    difficult = Target.of([(0, 0, 2, 2)] * 3, [0] * 3, difficult=[True, False, False])
    crowd = Target.of([(0, 0, 2, 2), (10, 10, 50, 50)], [0, 1], crowd=[True, False])
    report = coverage(SMALL, grid(40, num=2), difficult, crowd)
    assert report.num_boxes == 4 + 2 + 1
    assert report.lost.tolist() == [5, 6]
    assert report.matched_fraction == pytest.approx(5 / 7)


def test_small_boxes() -> None:
    report = coverage(SMALL, grid(40), grid(50), grid(4))
    assert report.matched_fraction == pytest.approx(2 / 3)
    assert report.smallest_side == pytest.approx(4, abs=0.1)
    assert "most boxes under 4 px of the input are lost" in report.advice
    assert list(report.alternatives) == [192, 256]


def test_a_larger_input_loses_fewer_small_boxes_and_the_advice_says_how_many() -> None:
    shelf = open_source("shelf").split("val")
    targets, sizes = [record.target for record in shelf], [(record.width, record.height) for record in shelf]
    report = anchor_coverage(SsdConfig(), CLASSES, targets, sizes)
    assert report is not None
    assert report.smallest_side is not None
    assert 15 < report.smallest_side < 25
    assert report.alternatives[512] > report.matched_fraction
    larger = anchor_coverage(SsdConfig(size=512), CLASSES, targets, sizes)
    assert larger is not None
    assert report.alternatives == {512: pytest.approx(larger.matched_fraction)}
    advised = re.search(r"lost: (?:detector\.)?(\w+)=(\w+) would match (\d+) %", report.advice)
    assert advised is not None
    changed = anchor_coverage(SsdConfig.of({advised[1]: advised[2]}), CLASSES, targets, sizes)
    assert changed is not None
    assert int(advised[3]) == round(100 * changed.matched_fraction)


def test_large_boxes() -> None:
    config = SMALL.model_copy(update={"levels": 2, "max_scale": 0.2})
    report = coverage(config, grid(25), grid(30), grid(110))
    assert report.smallest_side is None
    assert "too large" in report.advice
    # As measured anew with the settings it names.
    named = dict(re.findall(r"detector\.(\w+)=(\w+)", report.advice))
    assert named["max_scale"] == "auto"
    better = coverage(type(config).of({**config.tree(), **named}), grid(25), grid(30), grid(110))
    assert better.matched_fraction > report.matched_fraction


def test_long_boxes() -> None:
    report = coverage(SMALL, grid(40), grid(40, ratio=9))
    assert report.smallest_side is None
    assert "too long and narrow" in report.advice


def test_boxes_between_default_boxes() -> None:
    coarse = SMALL.model_copy(update={"finest_stride": 16, "min_scale": 0.12, "levels": 2})
    centers = [(x, y) for x in (36, 68, 100) for y in (36, 68, 100)]  # those of its cells are 24, 40, 56, ...
    boxes = [(x - 9, y - 9, x + 9, y + 9) for x, y in centers]
    report = coverage(coarse, Target.of(boxes, [0] * len(boxes)))
    assert (report.matched_fraction, report.smallest_side) == (0, None)
    assert "lie between default boxes" in report.advice
    assert report.alternatives[256] == 1


def test_sizes_that_a_backbone_does_not_take_are_passed_over() -> None:
    fixed = SsdLiteConfig(size=224, backbone="swin_tiny_patch4_window7_224", finest_stride=8, levels=3)
    assert coverage(fixed, grid(40)).alternatives == {}


def test_letterbox_is_followed_and_advised() -> None:
    wide = grid(100, ratio=1.2, image=(1280, 256), num=5)  # squashed: five times as high as wide
    squashed = anchor_coverage(SMALL, CLASSES, [wide], [(1280, 256)])
    boxed = anchor_coverage(
        SMALL, CLASSES, [wide], [(1280, 256)], transforms=TransformsConfig(resize="letterbox")
    )
    assert squashed is not None
    assert boxed is not None
    assert squashed.matched_fraction < boxed.matched_fraction
    assert "transforms.resize=letterbox would match" in squashed.advice


def test_what_is_less_than_a_pixel_is_lost() -> None:
    sliver = Target.of([(0, 0, 0.5, 0.5), (10, 10, 60, 60)], [0, 0])
    assert coverage(SMALL, sliver).lost.tolist() == [0]


def test_settings_that_are_auto_are_adapted_first() -> None:
    fixed = SMALL.model_copy(update={"levels": 2, "max_scale": 0.2})
    adapted = SsdLiteConfig.of({**fixed.tree(), "min_scale": "auto", "max_scale": "auto"})
    targets = (grid(100), grid(115))
    assert coverage(fixed, *targets).matched_fraction < 0.5
    assert coverage(adapted, *targets).matched_fraction > 0.9


def test_nothing_to_reach_and_nothing_to_start_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert anchor_coverage(SMALL, CLASSES, [Target.of([], [])], [(10, 10)]) is None
    assert anchor_coverage(SMALL, CLASSES, [], []) is None
    monkeypatch.setattr(module, "build_detector", _Boxless)
    assert anchor_coverage(SMALL, CLASSES, [grid(30)], [(128, 128)]) is None


class _Boxless(DetectorNet):
    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return (images,)

    def losses(self, batch: Batch) -> Losses:
        return Losses(terms={}, weight=torch.zeros(()))

    def candidates(self, raw: tuple[Tensor, ...], size: tuple[int, int]) -> Candidates:
        none = torch.zeros(len(raw[0]), 0)
        return Candidates(none[..., None], none, none)

    def class_tensors(self) -> dict[str, ClassRows]:
        return {}


def test_an_adapted_detector_is_measured_as_it_is() -> None:
    auto = SMALL.model_copy(update={"min_scale": "auto", "max_scale": "auto"})
    small, large = grid(10), grid(90)
    adapted, _ = counted_objects(large, [len(large)], [(128, 128)])[1].adapt(auto, TransformsConfig())
    both = anchor_coverage(auto, CLASSES, [small, large], [(128, 128)] * 2, adapted=adapted)
    assert both is not None
    assert both.matched_fraction < 0.7  # the boxes are not adapted to the small objects
