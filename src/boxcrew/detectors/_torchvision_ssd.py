"""Conversion of torchvision's SSD300 state to the names of `ssd.py`."""

from __future__ import annotations

import torch

from boxcrew.core.errors import ModelError
from boxcrew.nets.weights import State

# Name prefixes there -> here; where one begins another, the longer comes first. The seventh layer of their
# first extra block is itself a block (the fifth pooling, fc6, fc7); here its layers stand in a row.
_NAMES = {
    "backbone.scale_weight": "norm.scale",
    "backbone.features.": "backbone.to_conv4_3.",
    **{f"backbone.extra.0.7.{i}.": f"backbone.to_fc7.{7 + i}." for i in (1, 3)},
    "backbone.extra.0.": "backbone.to_fc7.",
    **{f"backbone.extra.{i}.": f"extras.{i - 1}." for i in range(1, 5)},
    "head.classification_head.module_list.": "class_heads.",
    "head.regression_head.module_list.": "box_heads.",
}

# Caffe's convention: the mean is subtracted, 0..255 pixels are not scaled.
_MEAN = (0.48235, 0.45882, 0.40784)


def is_torchvision_ssd300(state: State) -> bool:
    return "backbone.scale_weight" in state and "head.classification_head.module_list.0.weight" in state


def ssd300_from_torchvision(state: State) -> State:
    """Convert the state of torchvision's `ssd300_vgg16` to that of an `Ssd` with `size=300`.
    The result includes the normalization. The default boxes are those of `scales=coco`.
    """
    renamed = {_renamed(name): value for name, value in state.items()}
    return renamed | {
        "normalize.mean": torch.tensor(_MEAN) * 255,
        "normalize.std": torch.ones(3),
    }


def _renamed(name: str) -> str:
    for theirs, ours in _NAMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    raise ModelError(f"{name}: not a name of torchvision's ssd300_vgg16")
