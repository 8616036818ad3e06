"""Activation layers by the names that settings use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from torch import nn

Activation = Literal["relu", "leaky_relu", "gelu", "silu", "tanh"]

_LAYERS: Mapping[Activation, Callable[[], nn.Module]] = {
    "relu": partial(nn.ReLU, inplace=True),
    "leaky_relu": partial(nn.LeakyReLU, 0.1, inplace=True),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def activation_layer(name: Activation) -> nn.Module:
    """Return a new activation layer. It may overwrite its input, which must not be used again."""
    return _LAYERS[name]()
