"""Initialization of parameters before the first step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from boxcrew.core.torch_tools.tracked_weights import track_weights
from boxcrew.nets.spectral_norm import POWER_ITERATIONS

Scheme = Literal["auto", "he", "xavier", "orthogonal", "normal"]

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
Transposed: TypeAlias = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d

_DCGAN_STD = 0.02  # Radford et al. 2016, section 4


@torch.no_grad()
def initialize(module: nn.Module, scheme: Scheme, generator: torch.Generator | None = None) -> None:
    """Initialize all linear, convolutional and recurrent layers and embeddings, in place.

    - auto: keep what torch has drawn
    - he: normal, of variance 2 / inputs of a unit (He et al. 2015, equation 10)
    - xavier: uniform, of variance 2 / (inputs + outputs) (Glorot and Bengio 2010, equation 16)
    - orthogonal: all singular values are 1 (Saxe et al. 2014)
    - normal: of deviation 0.02, as for DCGAN

    Each group of a convolution and each gate of a recurrent layer is drawn by itself. Biases become 0, but
    those of an LSTM's forget gates 1, so that it remembers at first (Jozefowicz et al. 2015). Embeddings
    become normal. Normalization layers do not change. Without `generator`, torch's default one is used.
    """
    if scheme == "auto":
        return
    for layer in module.modules():
        if isinstance(layer, nn.Embedding):
            std = _DCGAN_STD if scheme == "normal" else layer.embedding_dim**-0.5
            layer.weight.normal_(std=std, generator=generator)
            if layer.padding_idx is not None:
                layer.weight[layer.padding_idx] = 0
        for values, fan_in, fan_out in _matrices(layer):
            if scheme == "he":
                values.normal_(std=math.sqrt(2 / fan_in), generator=generator)
            elif scheme == "xavier":
                bound = math.sqrt(6 / (fan_in + fan_out))
                values.uniform_(-bound, bound, generator=generator)
            elif scheme == "orthogonal":
                nn.init.orthogonal_(values, generator=generator)
            else:
                values.normal_(std=_DCGAN_STD, generator=generator)
        _initialize_biases(layer)
        if parametrize.is_parametrized(layer, "weight"):  # the spectral norm of the new weight
            for _ in range(POWER_ITERATIONS):
                track_weights(layer)


def _matrices(layer: nn.Module) -> Iterator[tuple[Tensor, float, float]]:
    """Yield the weights of each group or gate, as views, with fan-in and fan-out."""
    if isinstance(layer, nn.RNNBase):
        for weight in (value for value in layer.parameters(recurse=False) if value.ndim > 1):
            num_gates = max(1, weight.shape[0] // layer.hidden_size)  # a projection has no gates
            for values in weight.chunk(num_gates):
                yield values, values.shape[1], values.shape[0]
    elif isinstance(layer, nn.Linear):
        yield _stored(layer), layer.in_features, layer.out_features
    elif isinstance(layer, Convolution | Transposed):
        fans = _fans(layer)
        for values in _stored(layer).chunk(layer.groups):
            yield values, *fans


def _fans(layer: Convolution | Transposed) -> tuple[float, float]:
    """Return fan-in and fan-out of a convolution with its stride.

    With a stride, an input goes into fewer outputs than the kernel has positions; in a transposed convolution
    an output depends on fewer inputs. torch's own function swaps the fans of transposed layers.
    """
    positions, steps = math.prod(layer.kernel_size), math.prod(layer.stride)
    fan_in = layer.in_channels / layer.groups * positions
    fan_out = layer.out_channels / layer.groups * positions
    return (fan_in / steps, fan_out) if isinstance(layer, Transposed) else (fan_in, fan_out / steps)


def _stored(layer: nn.Module) -> Tensor:
    """Return the stored weight, also where each use computes another (of spectral norm 1) from it."""
    is_computed = parametrize.is_parametrized(layer, "weight")
    return layer.get_parameter("parametrizations.weight.original" if is_computed else "weight")


def _initialize_biases(layer: nn.Module) -> None:
    if not isinstance(layer, nn.RNNBase | nn.Linear | Convolution | Transposed):
        return
    for name, value in layer.named_parameters(recurse=False):
        if name.startswith("bias"):
            value.zero_()
        if name.startswith("bias_ih") and isinstance(layer, nn.LSTM):
            value.chunk(4)[1].fill_(1)  # torch's gates: input, forget, cell, output
