"""Faster R-CNN: its settings, its variants, what it refuses, and that it learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.detectors._faster_rcnn_config import FasterRcnnConfig
from boxcrew.detectors.faster_rcnn import FasterRcnn
from boxcrew.testing.detectors import CLASSES, check_any_split, noise_batch
from tests.helpers.by_heart import ap50_by_heart
from tests.helpers.tiny import BACKBONE


def tiny(**settings: Any) -> FasterRcnn:
    torch.manual_seed(0)
    quick = {"backbone": BACKBONE, "neck": 16, "head_width": 32, "size": 64, "proposals": 20}
    return FasterRcnn(FasterRcnnConfig.of({**quick, **settings}), CLASSES)


@pytest.mark.parametrize(
    "settings",
    [
        {"pyramid": "none", "finest_stride": 16},
        {"pyramid": "none", "finest_stride": 32, "pooling": "max"},
        {"pyramid": "fpn", "finest_stride": 4, "levels": 5, "pooling": "max"},
        {"pyramid": "fpn_norm", "head": "conv", "rpn_depth": 2},
        {"maps": "late", "anchor_sizes": "8,16,32,48", "anchor_grid": "corners"},
    ],
)
def test_every_variant_learns_and_uses_all_its_parameters(settings: dict[str, Any]) -> None:
    detector, batch = tiny(**settings), noise_batch((64, 64), (3, 0))
    losses = detector.losses(batch)
    assert float(losses.weight) == len(batch)
    named = dict(detector.named_parameters())
    gradients = torch.autograd.grad(losses.total(), list(named.values()), allow_unused=True)
    unused = [name for name, value in zip(named, gradients, strict=True) if value is None]
    assert not unused
    assert all(value.isfinite().all() for value in gradients)
    with torch.no_grad():
        assert len(detector.eval().predict(batch.inputs)) == len(batch)


def test_any_split_of_images_with_difficult_objects_learns_the_same() -> None:
    batch = noise_batch((64, 64), (3, 2, 0))
    batch.targets["difficult"][0, 1:] = True
    check_any_split(tiny(), batch)


def test_half_precision_is_close_to_full() -> None:
    detector, batch = tiny(rpn_samples=10_000, regions=400).eval(), noise_batch((64, 64), (3, 1))
    full = detector.losses(batch)
    with torch.autocast("cpu", torch.bfloat16):
        half = detector.losses(batch)
    assert float(half.total()) == pytest.approx(float(full.total()), rel=0.05)


def test_anchors_are_adapted_to_boxes() -> None:
    draw = torch.Generator().manual_seed(0)
    low = torch.rand(200, 2, generator=draw) * 0.8
    boxes = torch.cat((low, low + 0.08 + 0.1 * torch.rand(200, 2, generator=draw)), dim=1)
    config, note = FasterRcnnConfig.of({"finest_stride": "auto", "size": 256}).adapted(boxes)
    assert "anchors adapted to 200 objects" in note
    assert isinstance(config.anchor_sizes, tuple)
    assert 15 < config.anchor_sizes[0] < config.anchor_sizes[-1] < 80
    assert config.adapted(boxes) == (config, "")
    fixed = FasterRcnn(config.model_copy(update={"backbone": BACKBONE}), CLASSES)
    published = tiny(size=256, anchor_sizes="128,256,512")
    assert float((fixed.best_anchor_iou(boxes * 256) >= 0.5).float().mean()) > 0.9
    assert float((published.best_anchor_iou(boxes * 256) >= 0.5).float().mean()) < 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backbone": "resnet5o"}, "no such timm network"),
        ({"backbone": "vit_tiny_patch16_224", "finest_stride": 16}, "not a size that|fewer than two"),
        ({"anchor_sizes": "600,700"}, "larger than the input of 64 px"),
        ({"anchor_sizes": "0,700"}, "anchor_sizes"),
        ({"anchor_sizes": ""}, "anchor_sizes"),
        ({"rpn_negative_iou": 0.8}, "must not be above"),
        ({"backbone": "resnet18", "maps": "late"}, "has no blocks"),
        ({"finest_stride": 64}, "finest_stride"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tiny(**settings)


def test_sixteen_images_are_learned_by_heart() -> None:
    config = FasterRcnnConfig(
        size=128,
        backbone=BACKBONE,
        levels=2,
        pyramid="fpn_norm",
        neck=48,
        head_width=256,
        rpn_samples=64,
        rpn_positive_iou=0.5,
        proposals=60,
        regions=32,
    )
    assert ap50_by_heart(config, steps=70, rate=5e-3) > 0.95
