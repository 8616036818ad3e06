"""Conversion of the states of torchvision's Faster R-CNNs to the names of `faster_rcnn.py`.

Known are `fasterrcnn_resnet50_fpn`, its second version, and the two with MobileNetV3-Large, whose states are
alike. timm's bodies compute the same as torchvision's: only names differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import torch

from boxcrew.core.errors import ModelError
from boxcrew.detectors._faster_rcnn_config import FasterRcnnConfig
from boxcrew.nets.backbones import IMAGENET_MEAN, IMAGENET_STD
from boxcrew.nets.weights import State

_FPN = {"neck": 256, "head_width": 1024}
_RESNET = {**_FPN, "backbone": "resnet50", "maps": "strides", "finest_stride": 4, "levels": 5}
_V1 = {"pyramid": "fpn", "rpn_depth": 1, "head": "fc"}
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "fasterrcnn_resnet50_fpn": {**_RESNET, **_V1},
    "fasterrcnn_resnet50_fpn_v2": {**_RESNET, "pyramid": "fpn_norm", "rpn_depth": 2, "head": "conv"},
    "fasterrcnn_mobilenet_v3_large_320_fpn": {
        **_FPN,
        **_V1,
        "backbone": "mobilenetv3_large_100",
        "maps": "late",
        "levels": 3,
    },
}
"""The settings that make the layers of each of torchvision's networks."""

# Name prefixes there -> here; where one begins another, the longer comes first.
_NAMES = {
    "backbone.fpn.inner_blocks.": "neck.laterals.",
    "backbone.fpn.layer_blocks.": "neck.smooths.",
    "rpn.head.conv.": "rpn.layers.",
    "rpn.head.cls_logits.": "rpn.objectness.",
    "rpn.head.bbox_pred.": "rpn.offsets.",
    "roi_heads.box_head.fc6.": "head.hidden.1.",
    "roi_heads.box_head.fc7.": "head.hidden.3.",
    "roi_heads.box_head.": "head.hidden.",
    "roi_heads.box_predictor.cls_score.": "head.scores.",
    "roi_heads.box_predictor.bbox_pred.": "head.offsets.",
}
_STAGES = (1, 2, 3, 4, 2, 3)  # blocks of each stage of MobileNetV3-Large, all but its last layer
_EPS = 1e-5  # of BatchNorms


def torchvision_name(state: State) -> str | None:
    """Return the name of the torchvision network that a state is of; None if it is another's."""
    if not {"rpn.head.cls_logits.weight", "roi_heads.box_predictor.cls_score.weight"} <= state.keys():
        return None
    if "backbone.body.16.0.weight" in state:
        return "fasterrcnn_mobilenet_v3_large_320_fpn"
    has_convolutions = "roi_heads.box_head.0.0.weight" in state
    return "fasterrcnn_resnet50_fpn_v2" if has_convolutions else "fasterrcnn_resnet50_fpn"


def from_torchvision(name: str, state: State, config: FasterRcnnConfig) -> State:
    """Convert the state of torchvision's network `name` to that of a `FasterRcnn` with these settings.
    The result includes the normalization; offsets of the background, which mean nothing, are left out.
    """
    _require_settings(name, config)
    if name == "fasterrcnn_resnet50_fpn" and "backbone.body.bn1.num_batches_tracked" not in state:
        state = _without_eps(state)
    bodies = dict(_mobilenet_names(state)) if "mobilenet" in name else {"backbone.body.": "backbone.body."}
    names = {**bodies, **_NAMES}
    renamed = {_renamed(_current(key), names, network=name): value for key, value in state.items()}
    for layer in ("head.offsets.weight", "head.offsets.bias"):
        renamed[layer] = renamed[layer][4:]
    return renamed | {
        "normalize.mean": torch.tensor(IMAGENET_MEAN) * 255,
        "normalize.std": torch.tensor(IMAGENET_STD) * 255,
    }


def _require_settings(name: str, config: FasterRcnnConfig) -> None:
    wrong = {key: value for key, value in SETTINGS[name].items() if getattr(config, key) != value}
    if wrong:
        words = " ".join(f"detector.{key}={value}" for key, value in wrong.items())
        raise ModelError(f"these are weights of torchvision's {name}, another network", advice=f"set {words}")


def _current(name: str) -> str:
    """Return the name that present versions give to a layer: published files have older names."""
    parts = name.split(".")
    if name.startswith("rpn.head.conv.") and len(parts) == 4:
        parts[3:3] = ["0", "0"]
    if name.startswith("backbone.fpn.") and len(parts) == 5:
        parts[4:4] = ["0"]
    return ".".join(parts)


def _renamed(name: str, names: Mapping[str, str], *, network: str) -> str:
    for theirs, ours in names.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    raise ModelError(f"{name}: not a name of torchvision's {network}")


def _without_eps(state: State) -> State:
    """Return a state whose BatchNorms of the body compute with the usual eps what they did with 0.
    torchvision uses 0 with its published weights, whose frozen BatchNorms have no counters.
    """
    changed = dict(state)
    for name, variance in state.items():
        if name.startswith("backbone.body.") and name.endswith(".running_var"):
            weight = name.replace("running_var", "weight")
            changed[weight] = state[weight] * ((variance + _EPS) / variance).sqrt()
    return changed


def _mobilenet_names(state: State) -> Iterator[tuple[str, str]]:
    """Yield the prefixes of the layers of torchvision's MobileNetV3-Large, and timm's."""
    yield "backbone.body.0.0.", "backbone.body.conv_stem."
    yield "backbone.body.0.1.", "backbone.body.bn1."
    places = chain.from_iterable(((stage, i) for i in range(num)) for stage, num in enumerate(_STAGES))
    for feature, (stage, block) in enumerate(places, start=1):
        theirs, ours = f"backbone.body.{feature}.block", f"backbone.body.blocks.{stage}.{block}"
        layers = ["conv_pw", "conv_dw", "conv_pwl"] if feature > 1 else ["conv_dw", "conv_pw"]
        steps = list(range(len(layers)))
        if f"{theirs}.2.fc1.weight" in state:
            yield f"{theirs}.2.fc1.", f"{ours}.se.conv_reduce."
            yield f"{theirs}.2.fc2.", f"{ours}.se.conv_expand."
            steps[-1] += 1
        for number, (step, layer) in enumerate(zip(steps, layers, strict=True), start=1):
            yield f"{theirs}.{step}.0.", f"{ours}.{layer}."
            yield f"{theirs}.{step}.1.", f"{ours}.bn{number}."
    yield "backbone.body.16.0.", f"backbone.body.blocks.{len(_STAGES)}.0.conv."
    yield "backbone.body.16.1.", f"backbone.body.blocks.{len(_STAGES)}.0.bn1."
