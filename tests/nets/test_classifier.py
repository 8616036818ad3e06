from __future__ import annotations

import pytest
import torch

from boxcrew.core.errors import UsageError
from boxcrew.nets.classifier import TimmBody


def body(name: str, *, drop_path: float = 0.0, size: int = 64) -> TimmBody:
    """Without numbers: some of these have hundreds of megabytes."""
    with torch.device("meta"):
        return TimmBody(name, 5, shape=(size, size, 1), dropout=0.0, drop_path=drop_path)


@pytest.mark.parametrize(
    "name",
    [
        "mobilenetv3_small_050",
        "mobilenetv4_conv_small_050",
        "vgg11",
        "resnet18",
        "tf_efficientnet_lite0",
        "vit_tiny_patch16_224",
        "efficientvit_m0",
    ],
)
def test_any_of_timms_networks_gets_a_head(name: str) -> None:
    assert body(name)(torch.zeros(2, 1, 64, 64, device="meta")).shape == (2, 5)


def test_branches_can_be_dropped_only_where_there_are_some() -> None:
    body("resnet18", drop_path=0.1)
    with pytest.raises(UsageError, match=r"net\.drop_path=0\.1: vgg11 has no residual branches"):
        body("vgg11", drop_path=0.1)


def test_image_sizes_that_a_network_does_not_take_are_named() -> None:
    with pytest.raises(UsageError, match="vit_tiny_patch16_224: does not take images of 8 x 8"):
        body("vit_tiny_patch16_224", size=8)
