"""timm's networks as lists of maps."""

from __future__ import annotations

import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.nets.backbones import IMAGENET_MEAN, IMAGENET_STD, Backbone


@pytest.mark.parametrize(
    ("name", "size"),
    [("mobilenetv3_small_050", 70), ("resnet10t", 97), ("swin_tiny_patch4_window7_224", 224)],
)
def test_maps_are_those_announced_finest_first(name: str, size: int) -> None:
    backbone = Backbone(name, finest_stride=8).eval()
    with torch.no_grad():
        maps = backbone(torch.zeros(1, 3, size, size))
    assert backbone.strides == sorted(backbone.strides)
    assert backbone.strides[0] >= 8
    assert [m.shape[1] for m in maps] == backbone.channels
    assert [m.shape[2] for m in maps] == [-(-size // stride) for stride in backbone.strides]


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"detector\.backbone=resnet81: .*did you mean 'resnet\d+'\?"):
        Backbone("resnet81", finest_stride=16)


def test_nonsense_is_answered_in_a_few_lines() -> None:
    with pytest.raises(UsageError) as caught:
        Backbone("qqqqq", finest_stride=16)
    assert len(caught.value.message) < 2000


def test_a_network_without_maps_is_refused() -> None:
    with pytest.raises(UsageError, match=r"detector\.backbone=convit_tiny: has no feature maps"):
        Backbone("convit_tiny", finest_stride=16)


def test_a_network_with_too_few_maps_is_refused_with_advice() -> None:
    with pytest.raises(UsageError, match="fewer than two from 32 on") as caught:
        Backbone("mobilenetv3_small_050", finest_stride=32)
    assert "finest_stride" in caught.value.advice


def test_the_normalization_is_that_of_the_published_weights() -> None:
    assert Backbone("mobilenetv3_small_050", finest_stride=16).expected_normalization() == (
        IMAGENET_MEAN,
        IMAGENET_STD,
    )
