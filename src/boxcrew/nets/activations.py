"""The activations that networks can be given by name."""

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
    """May change its input in place: not for what is still needed."""
    return _LAYERS[name]()
