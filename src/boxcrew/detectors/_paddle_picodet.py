"""Conversion of the state of PaddleDetection's PicoDet-S to the names of `picodet.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor

from boxcrew.core.errors import ModelError
from boxcrew.nets.backbones import IMAGENET_MEAN, IMAGENET_STD
from boxcrew.nets.weights import State

_STAGES = (1, 2, 2, 2, 4, 2)  # blocks of each stage of PP-LCNet; those of the last have attention
_LEVELS = range(4)
_NORM = {"weight": "w_0", "bias": "b_0", "running_mean": "w_1", "running_var": "w_2"}  # here -> there

Layer = tuple[str, str | None]
"""The names of a convolution and of its BatchNorm; a convolution with a bias has none."""


def is_paddle(state: State) -> bool:
    """Return whether the names are those of an exported model: kind and number of a layer, no structure."""
    return {"conv2d_0.w_0", "batch_norm2d_0.w_0"} <= state.keys()


def picodet_from_paddle(state: State) -> State:
    """Convert the state of an exported PicoDet-S to that of a `PicoDet` with the default settings.

    Layers are numbered in the order in which they were made. What follows from the input size (centers and
    strides of points) is left out. The result includes the normalization.
    """
    matches = (re.fullmatch(r"conv2d_(\d+)\.w_0", name) for name in state)
    numbers = sorted(int(match[1]) for match in matches if match)
    layers = list(_layers())
    if len(numbers) != len(layers):
        raise ModelError(f"the file has {len(numbers)} convolutions, and PicoDet-S {len(layers)}")
    converted: State = {
        "normalize.mean": torch.tensor(IMAGENET_MEAN) * 255,
        "normalize.std": torch.tensor(IMAGENET_STD) * 255,
    }
    norm_numbers = count()
    for number, (convolution, norm) in zip(numbers, layers, strict=True):
        converted[f"{convolution}.weight"] = state[f"conv2d_{number}.w_0"]
        if norm is None:
            converted[f"{convolution}.bias"] = _tensor(state, f"conv2d_{number}.b_0")
        else:
            prefix = f"batch_norm2d_{next(norm_numbers)}"
            converted |= {
                f"{norm}.{ours}": _tensor(state, f"{prefix}.{theirs}") for ours, theirs in _NORM.items()
            }
    return converted


def _tensor(state: State, name: str) -> Tensor:
    if name not in state:
        raise ModelError(f"the file has no {name}, which PicoDet-S has")
    return state[name]


def _layers() -> Iterator[Layer]:
    """Yield the layers in the order in which PaddleDetection makes them."""
    yield "backbone.body.conv_stem", "backbone.body.bn1"
    for stage, num_blocks in enumerate(_STAGES):
        for block in range(num_blocks):
            yield from _block(f"backbone.body.blocks.{stage}.{block}", attention=stage == len(_STAGES) - 1)
    for i in range(3):
        yield from _conv(f"neck.laterals.{i}")
    yield from _separable("neck.last_lateral")
    yield from _separable("neck.last_down")
    for i in range(2):
        yield from _merge(f"neck.top_down.{i}")
    for i in range(2):
        yield from _separable(f"neck.downs.{i}")
        yield from _merge(f"neck.bottom_up.{i}")
    for i in _LEVELS:
        yield from _merge(f"heads.{i}.layers")
        yield f"heads.{i}.attention", None
        yield from _conv(f"heads.{i}.mix")
    for i in _LEVELS:
        yield f"heads.{i}.classes", None
        yield f"heads.{i}.distances", None
        yield from _conv(f"heads.{i}.alignment.0")
        yield f"heads.{i}.alignment.1", f"heads.{i}.alignment.2"


def _block(name: str, *, attention: bool) -> Iterator[Layer]:
    yield f"{name}.conv_dw", f"{name}.bn1"
    if attention:
        yield f"{name}.se.conv_reduce", None
        yield f"{name}.se.conv_expand", None
    yield f"{name}.conv_pw", f"{name}.bn2"


def _conv(name: str) -> Iterator[Layer]:
    yield f"{name}.0", f"{name}.1"


def _separable(name: str) -> Iterator[Layer]:
    yield from _conv(f"{name}.0")
    yield from _conv(f"{name}.1")


def _merge(name: str) -> Iterator[Layer]:
    yield from _separable(f"{name}.0")
    yield from _separable(f"{name}.1")
