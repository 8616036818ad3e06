"""Faster R-CNN with the state of one of torchvision's finds what torchvision's finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection import (
    FasterRCNN,
    fasterrcnn_mobilenet_v3_large_320_fpn,
    fasterrcnn_resnet50_fpn,
    fasterrcnn_resnet50_fpn_v2,
)
from torchvision.models.detection._utils import overwrite_eps
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.image_list import ImageList

from boxcrew.core.errors import ModelError
from boxcrew.detectors._faster_rcnn_config import FasterRcnnConfig
from boxcrew.detectors._torchvision_faster_rcnn import SETTINGS, torchvision_name
from boxcrew.detectors.faster_rcnn import FasterRcnn
from boxcrew.nets.anchors import to_xyxy
from boxcrew.nets.backbones import IMAGENET_MEAN, IMAGENET_STD

CLASSES = tuple("abc")
SIDE = 128
SIZES = (32.0, 64.0, 128.0, 256.0, 512.0)
BUILDERS: dict[str, Callable[..., FasterRCNN]] = {
    "fasterrcnn_resnet50_fpn": fasterrcnn_resnet50_fpn,
    "fasterrcnn_resnet50_fpn_v2": fasterrcnn_resnet50_fpn_v2,
    "fasterrcnn_mobilenet_v3_large_320_fpn": fasterrcnn_mobilenet_v3_large_320_fpn,
}
FEW = 60  # proposals, for speed
MIN_SCORES = {"fasterrcnn_mobilenet_v3_large_320_fpn": 0.05}  # of proposals: torchvision's own


def config_of(name: str, **changes: Any) -> FasterRcnnConfig:
    limits = {"candidates": FEW, "proposals": FEW, "proposal_score": MIN_SCORES.get(name, 0.0)}
    anchors = {"anchor_sizes": SIZES, "anchor_grid": "corners"}
    return FasterRcnnConfig.of({"size": SIDE, **limits, **anchors, **SETTINGS[name], **changes})


class Pair:
    """One of torchvision's networks, ours with its state, and images."""

    def __init__(self, name: str) -> None:
        self.name = name
        torch.manual_seed(1)
        options = {"min_size": SIDE, "max_size": SIDE, "num_classes": 1 + len(CLASSES)}
        few = {"rpn_pre_nms_top_n_test": FEW, "rpn_post_nms_top_n_test": FEW}
        self.theirs = BUILDERS[name](weights=None, weights_backbone=None, **options, **few)
        self.images = torch.randint(0, 256, (2, 3, SIDE, SIDE), dtype=torch.uint8)
        make_lively(self.theirs, self.images / 255)
        self.ours = FasterRcnn(config_of(name), CLASSES)
        state = self.ours.convert_foreign(self.theirs.state_dict())
        self.ours.load_state_dict(state, strict=True)
        # In double precision, the colors too: rounding decides which of two boxes is kept that overlap each
        # other by nearly as much as they may.
        self.theirs.double().eval()
        self.ours.double().eval()
        for buffer, values in (("mean", IMAGENET_MEAN), ("std", IMAGENET_STD)):
            exact = 255 * torch.tensor(values, dtype=torch.float64)
            torch.testing.assert_close(getattr(self.ours.normalize, buffer), exact, rtol=1e-6, atol=0)
            setattr(self.ours.normalize, buffer, exact)


def make_lively(network: FasterRCNN, images: Tensor) -> None:
    """Set statistics and weights of a fresh network such that its scores and boxes vary."""
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the plain mean of what was seen
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.2)
    network.train()
    targets = [{"boxes": torch.tensor([[20.0, 20, 90, 90]]), "labels": torch.tensor([1])}] * len(images)
    with torch.no_grad():
        network(list(images), targets)
    predictor, head = network.roi_heads.box_predictor, network.rpn.head
    layers = {predictor.cls_score: 1.0, predictor.bbox_pred: 0.3, head.cls_logits: 4.0, head.bbox_pred: 0.2}
    for layer, spread in layers.items():
        length = _inputs_of(layer, network.eval(), images).norm(dim=1).mean()
        nn.init.normal_(layer.weight, std=spread / float(length))
        nn.init.normal_(layer.bias, std=0.3)


def _inputs_of(layer: nn.Module, network: FasterRCNN, images: Tensor) -> Tensor:
    """Return the features (N, C) that a layer is given for these images."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        network(list(images))
    hook.remove()
    return seen[0].movedim(1, -1).flatten(0, -2)


@pytest.fixture(scope="module", params=list(BUILDERS))
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def test_anchors_are_torchvisions(pair: Pair) -> None:
    maps = [torch.zeros(1, 1, SIDE // grid.stride, SIDE // grid.stride) for grid in pair.ours.grids]
    images = ImageList(torch.zeros(1, 3, SIDE, SIDE), [(SIDE, SIDE)])
    theirs = pair.theirs.rpn.anchor_generator(images, maps)[0]
    grids = zip(pair.ours.grids, maps, strict=True)
    ours = torch.cat([grid.on_map(*features.shape[-2:], like=theirs) for grid, features in grids])
    assert torch.equal(to_xyxy(ours), theirs)


def test_detections_are_torchvisions(pair: Pair) -> None:
    with torch.no_grad():
        theirs = pair.theirs(list(pair.images.double() / 255))
        ours = pair.ours.predict(pair.images)
    for found, other in zip(ours, theirs, strict=True):
        assert len(found) == len(other["scores"]) > 20
        scores, labels, boxes = map(torch.from_numpy, (found.scores, found.labels, found.boxes))
        assert float(other["scores"].std()) > 0.02
        torch.testing.assert_close(scores.double(), other["scores"], rtol=0, atol=1e-4)
        # Scores that differ by rounding alone may change places.
        same = (labels + 1 == other["labels"][:, None]) & ((scores - other["scores"][:, None]).abs() < 1e-4)
        apart = (boxes - other["boxes"][:, None]).abs().amax(dim=-1)
        assert float(apart.masked_fill(~same, torch.inf).amin(dim=1).max()) < 1e-2


def test_names_are_known_and_the_background_has_no_offsets(pair: Pair) -> None:
    state = pair.theirs.state_dict()
    assert torchvision_name(state) == pair.name
    assert pair.ours.convert_foreign(state).keys() == pair.ours.state_dict().keys()
    own = pair.ours.state_dict()
    assert pair.ours.convert_foreign(own) is own
    with pytest.raises(ModelError, match=r"roi_heads\.mask"):
        pair.ours.convert_foreign(state | {"roi_heads.mask": torch.zeros(1)})
    offsets = state["roi_heads.box_predictor.bbox_pred.weight"]
    assert torch.equal(own["head.offsets.weight"], offsets[4:])


def test_weights_of_another_network_are_refused_with_the_settings_for_it(pair: Pair) -> None:
    others = FasterRcnn(FasterRcnnConfig(size=64, backbone="mobilenetv3_small_050"), CLASSES)
    with pytest.raises(ModelError, match=f"torchvision's {pair.name}") as raised:
        others.convert_foreign(pair.theirs.state_dict())
    assert f"detector.backbone={SETTINGS[pair.name]['backbone']}" in raised.value.advice


def published_resnet() -> tuple[FasterRCNN, dict[str, Tensor]]:
    """Return a network with frozen BatchNorms and an eps of 0, and its state under older names."""
    torch.manual_seed(2)
    backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None)
    network = FasterRCNN(backbone, num_classes=1 + len(CLASSES)).eval()
    for name, value in network.named_buffers():
        if name.endswith("running_var"):
            nn.init.uniform_(value, 1e-6, 1e-3)  # where eps makes a difference
        elif name.endswith("body.bn1.weight"):
            value.mul_(0.01)
    overwrite_eps(network, 0.0)
    state = {
        name.replace("rpn.head.conv.0.0.", "rpn.head.conv."): value
        for name, value in network.state_dict().items()
    }
    for block in ("inner_blocks", "layer_blocks"):
        for i in range(4):
            for kind in ("weight", "bias"):
                old = f"backbone.fpn.{block}.{i}.{kind}"
                state[old] = state.pop(f"backbone.fpn.{block}.{i}.0.{kind}")
    return network, state


def test_published_weights_have_frozen_norms_without_eps_and_older_names() -> None:
    theirs, state = published_resnet()
    ours = FasterRcnn(config_of("fasterrcnn_resnet50_fpn"), CLASSES).eval()
    missing, unexpected = ours.load_state_dict(ours.convert_foreign(state), strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        wanted = theirs.backbone.body(images)["0"]
        found = ours.backbone(images)[0]
    assert float(wanted.std()) > 0
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
