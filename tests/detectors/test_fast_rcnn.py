"""Fast R-CNN, R-CNN and SPPNet: which regions they learn from, and that they learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch
from boxcrew.detectors._regions import with_true_boxes
from boxcrew.detectors.fast_rcnn import FastRcnn, FastRcnnConfig
from boxcrew.detectors.rcnn import Rcnn, RcnnConfig
from boxcrew.detectors.sppnet import Sppnet, SppnetConfig, nearest_scale
from boxcrew.nets.region_head import RegionChoice, sample_regions
from boxcrew.nets.region_targets import Truth
from boxcrew.testing.detectors import CLASSES, noise_batch, with_regions
from tests.helpers.by_heart import ap50_by_heart
from tests.helpers.tiny import BACKBONE

CHOICE = RegionChoice(count=8, positive_share=0.25, positive_iou=0.5, negative_from=0.1)


def batch_with(regions: list[list[float]], objects: list[list[float]]) -> Batch:
    batch = noise_batch((64, 64), (len(objects),))
    boxes, valid = torch.tensor([regions]), torch.ones(1, len(regions), dtype=torch.bool)
    batch = replace(batch, extra={"regions": boxes, "regions_valid": valid})
    if objects:
        batch = replace(batch, targets={**batch.targets, "boxes": torch.tensor([objects])})
    return batch


def test_regions_far_from_all_objects_are_not_background() -> None:
    """Positive from 0.5 on, background from 0.1 to 0.5; the object itself is a region too."""
    regions: list[list[float]] = [[0.0, 0, 10, 8], [0, 0, 10, 3], [40, 40, 60, 60]]
    batch = batch_with(regions, [[0.0, 0, 10, 10]])
    truth = Truth.of(batch.targets, torch.float32)
    sample = sample_regions(*with_true_boxes(batch, truth), truth, CHOICE)
    chosen = {tuple(box) for box in sample.boxes[0][sample.valid[0]].tolist()}
    assert chosen == {(0, 0, 10, 8), (0, 0, 10, 3), (0, 0, 10, 10)}
    assert int((sample.classes > 0).sum()) == 2


def test_an_image_without_objects_is_all_background() -> None:
    batch = batch_with([[0.0, 0, 10, 8], [40, 40, 60, 60]], [])
    truth = Truth.of(batch.targets, torch.float32)
    sample = sample_regions(*with_true_boxes(batch, truth), truth, CHOICE)
    assert int(sample.valid.sum()) == 2
    assert not sample.classes.any()


def test_true_boxes_join_in_training_only() -> None:
    detector = FastRcnn(FastRcnnConfig(size=64, backbone=BACKBONE), CLASSES).eval()
    batch = with_regions(noise_batch((64, 64), (2,)), detector.config)
    with torch.no_grad():
        scores, _, valid = detector(batch.inputs, *batch.extra.values())
    assert scores.shape[1] == batch.extra["regions"].shape[1]
    assert torch.equal(valid > 0, batch.extra["regions_valid"])


def test_an_input_that_the_backbone_does_not_take_is_refused() -> None:
    with pytest.raises(UsageError, match=r"detector\.size=100"):
        FastRcnn(FastRcnnConfig(size=100, backbone="vit_tiny_patch16_224"), CLASSES)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (Rcnn, RcnnConfig(size=64, backbone=BACKBONE, crop_size=32, context=4)),
        (Sppnet, SppnetConfig(size=64, backbone=BACKBONE)),
    ],
)
def test_the_solved_head_takes_over(kind: type[Rcnn | Sppnet], config: RcnnConfig | SppnetConfig) -> None:
    """Until it is solved, scores are those of softmax and boxes are the regions themselves."""
    torch.manual_seed(0)
    detector = kind(config, CLASSES).eval()  # type: ignore[arg-type]
    batch = with_regions(noise_batch((64, 64), (2,)), config)
    with torch.no_grad():
        scores, boxes, _ = detector(batch.inputs, *batch.extra.values())
        torch.testing.assert_close(boxes[:, :, 0], batch.extra["regions"])
        torch.testing.assert_close(
            detector.probabilities(scores).mean(), torch.tensor(0.25), atol=0.1, rtol=0
        )
        detector.head.is_solved.fill_(value=True)
        detector.head.svm_bias.fill_(-1.0)
        scores, _, _ = detector(batch.inputs, *batch.extra.values())
    torch.testing.assert_close(scores, torch.full_like(scores, -4.0))
    assert [stage.name for stage in config.stages()] == ["finetune", "svm"]


def test_a_region_is_pooled_at_the_scale_that_suits_its_area() -> None:
    boxes = torch.tensor([[[0.0, 0, 8, 8], [0, 0, 60, 60], [0, 0, 30, 30]]])
    assert nearest_scale(boxes, (0.5, 1.0), side=30).tolist() == [[1, 0, 1]]


def test_features_at_several_scales_are_those_of_each_alone() -> None:
    small = SppnetConfig(size=64, backbone=BACKBONE, scales=(0.5, 1.0), region_side=30)
    detector = Sppnet(small, CLASSES).eval()
    images, boxes = torch.rand(1, 3, 64, 64), torch.tensor([[[0.0, 0, 8, 8], [0, 0, 60, 60], [4, 4, 34, 34]]])
    half = F.interpolate(images, (32, 32), mode="bilinear", antialias=True)
    with torch.no_grad():
        several = detector.pool(images, boxes)
        detector.config = SppnetConfig(size=64, backbone=BACKBONE)
        whole, halved = detector.pool(images, boxes), detector.pool(half, boxes / 2)
    torch.testing.assert_close(several[[0, 2]], whole[[0, 2]])
    torch.testing.assert_close(several[1], halved[1])
    assert not torch.equal(whole[1], halved[1])


FAST = FastRcnnConfig(
    size=128, backbone="lcnet_035", neck=64, head_width=256, stride=8, proposals=1000, pooling="align"
)
SPP = SppnetConfig(size=128, backbone="lcnet_035", neck=32, head_width=128, stride=8, proposals=600)
CROPS = RcnnConfig(
    size=128, backbone=BACKBONE, neck=32, head_width=128, stride=8, proposals=300, regions=24, crop_size=32,
    context=2,
)  # fmt: skip


def test_sixteen_images_are_learned_by_heart_by_fast_rcnn() -> None:
    assert ap50_by_heart(FAST, steps=60, rate=5e-3) > 0.9


def test_sixteen_images_are_learned_by_heart_by_sppnet() -> None:
    assert ap50_by_heart(SPP, steps=50, rate=5e-3) > 0.8


def test_sixteen_images_are_learned_by_heart_by_rcnn() -> None:
    assert ap50_by_heart(CROPS, steps=80, rate=8e-3) > 0.8
