"""SSDLite on several backbones, at sizes that do not divide evenly."""

from __future__ import annotations

import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.testing.detectors import CLASSES, noise_batch


@pytest.mark.parametrize("size", [200, 224, 321])
@pytest.mark.parametrize(
    "backbone", ["efficientnet_lite0", "mobilenetv2_100", "mobilenetv3_large_100", "resnet18"]
)
def test_each_default_box_has_a_prediction(backbone: str, size: int) -> None:
    config = SsdLiteConfig(backbone=backbone, size=size, finest_stride=8 if size == 200 else 16)
    detector = SsdLite(config, CLASSES).eval()
    with torch.no_grad():
        scores, offsets = detector(torch.zeros(1, 3, size, size, dtype=torch.uint8))
    assert scores.shape == (1, len(detector.anchors), 1 + len(CLASSES))
    assert offsets.shape == (1, len(detector.anchors), 4)
    assert (detector.anchors[:, :2] < size).all()


def test_a_transformer_that_works_channels_last_can_carry_heads() -> None:
    config = SsdLiteConfig(backbone="swin_tiny_patch4_window7_224", size=224)
    detector = SsdLite(config, CLASSES).eval()
    with torch.no_grad():
        assert detector(torch.zeros(1, 3, 224, 224))[0].shape[1] == len(detector.anchors)


def test_a_backbone_of_a_fixed_size_says_so() -> None:
    with pytest.raises(UsageError, match=r"detector\.size=320: .*backbone=vit_tiny_patch16_224"):
        SsdLite(SsdLiteConfig(backbone="vit_tiny_patch16_224", size=320), CLASSES)


def test_a_backbone_with_a_typo_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'efficientnet_lite0'"):
        SsdLite(SsdLiteConfig(backbone="efficientnet_lit0"), CLASSES)


def test_scales_grow_evenly_from_the_finest_map(small: SsdLite) -> None:
    sides = [8, 4, 2, 1]
    first_of_each = [0, *(6 * sum(s * s for s in sides[: i + 1]) for i in range(3))]
    assert len(small.anchors) == 6 * sum(s * s for s in sides)
    wanted = [64 * (0.1 + 0.8 * i / 3) for i in range(4)]
    assert small.anchors[first_of_each, 2].tolist() == pytest.approx(wanted)
    assert small.anchors[0, :2].tolist() == [4, 4]


def test_small_boxes_have_a_default_box_near_them(small: SsdLite) -> None:
    losses = small.losses(noise_batch((64, 64), (1, 1), seed=2))
    assert float(losses.weight) >= 2


@pytest.mark.parametrize("num_images", [1, 2])
def test_batches_of_any_size_can_be_trained_on(num_images: int) -> None:
    """The last map is a single cell: of one image it gives one value to normalize."""
    detector = SsdLite(SsdLiteConfig(size=64, backbone="mobilenetv3_small_050"), CLASSES).train()
    total = detector.losses(noise_batch((64, 64), (2,) * num_images)).total()
    gradients = torch.autograd.grad(total, list(detector.extras.parameters()), allow_unused=True)
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_building_leaves_the_backbones_statistics_alone(small: SsdLite) -> None:
    means = [value for name, value in small.backbone.state_dict().items() if name.endswith("running_mean")]
    assert means
    assert all((value == 0).all() for value in means)
    assert SsdLite(small.config, CLASSES).backbone.training


def test_a_top_down_path_keeps_the_maps(small: SsdLite) -> None:
    config = SsdLiteConfig.of(small.config.tree() | {"neck": 32, "size": 75})
    detector = SsdLite(config, CLASSES).eval()
    with torch.no_grad():
        assert detector(torch.zeros(1, 3, 75, 75))[0].shape[1] == len(detector.anchors)
