"""The present-day YOLO: what its scores and boxes begin with, its losses, and that it learns."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812

from boxcrew.detectors.yolo import Yolo, YoloConfig
from boxcrew.testing.detectors import CLASSES, noise_batch
from tests.helpers.by_heart import ap50_by_heart

TINY = YoloConfig(size=96, backbone="lcnet_035", neck=64)


def tiny() -> Yolo:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Yolo(TINY, CLASSES).eval()


def test_scores_begin_near_one_percent_and_boxes_two_strides_from_their_points() -> None:
    detector = tiny()
    with torch.no_grad():
        scores, boxes = detector(noise_batch((96, 96), (1,)).inputs)
    assert 0.005 < float(scores.sigmoid().median()) < 0.02
    sides = (boxes[..., 2:] - boxes[..., :2]).amin(dim=-1)[0]
    strides = torch.cat([torch.full(((96 // stride) ** 2,), float(stride)) for stride in detector.strides])
    assert float((sides / strides).median()) > 3


def test_images_without_objects_are_negatives() -> None:
    detector, batch = tiny().double(), noise_batch((96, 96), (0, 0))  # sums of float32 depend on their order
    with torch.no_grad():
        losses, (scores, _) = detector.losses(batch), detector(batch.inputs)
    assert float(losses.weight) == float(losses.terms["iou"]) == float(losses.terms["distance"]) == 0
    by_hand = F.softplus(scores).sum()  # -log(1 - sigmoid(score))
    torch.testing.assert_close(losses.terms["class"], by_hand)


def test_sixteen_images_are_learned_by_heart() -> None:
    assert ap50_by_heart(TINY, steps=75) > 0.95
