"""Small layers that several networks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.torch_tools.batch_norm import batch_norm

Activation = Literal["relu", "leaky_relu", "gelu", "silu", "tanh"]

_ACTIVATIONS: Mapping[Activation, Callable[[], nn.Module]] = {
    "relu": partial(nn.ReLU, inplace=True),
    "leaky_relu": partial(nn.LeakyReLU, 0.1, inplace=True),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def activation_layer(name: Activation) -> nn.Module:
    """Return a new activation layer. It may overwrite its input, which must not be used again."""
    return _ACTIVATIONS[name]()


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Switch every module to evaluation mode, and each back to its own mode afterwards.
    Modes differ within a network: frozen BatchNorms stay in evaluation mode while the rest is trained.
    """
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


class Normalize(nn.Module):
    """A layer that maps 0..255 pixels to the range that the weights were trained on.
    Mean and deviation are buffers, so that they are always saved with the weights.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Set `mean` and `std` of 0..1 pixels, one number for each channel."""
        super().__init__()
        self.register_buffer("mean", torch.empty(len(mean)))
        self.register_buffer("std", torch.empty(len(std)))
        self.set(mean, std)

    def set(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean.copy_(torch.tensor(mean) * 255)
        self.std.copy_(torch.tensor(std) * 255)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, C, H, W), uint8 or float in 0..255, to floats of unit size in the same memory format."""
        mean = self.mean.reshape(1, -1, 1, 1)
        return (images.to(mean.dtype) - mean) / self.std.reshape(1, -1, 1, 1)


class L2Norm(nn.Module):
    """A layer that scales each position's features to length 1, then each channel by a factor (SSD, 3.1)."""

    def __init__(self, channels: int, *, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), scale))

    def forward(self, features: Tensor) -> Tensor:
        return self.scale.reshape(1, -1, 1, 1) * F.normalize(features)


class SingleCellNorm(nn.BatchNorm2d):
    """BatchNorm that can also train on one image whose map is a single cell.
    A single value has no deviation, so such a map is normalized by the running statistics.
    """

    def forward(self, features: Tensor) -> Tensor:
        assert self.momentum is not None
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        tensors = self.running_mean, self.running_var, self.weight, self.bias
        return batch_norm(features, *tensors, self.training, self.momentum, self.eps)


def conv_norm(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution, BatchNorm and ReLU6, padded so that stride 1 keeps the size of the map."""
    padding = (kernel - 1) // 2
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(
        convolution, SingleCellNorm(outputs, eps=0.001, momentum=0.03), nn.ReLU6(inplace=True)
    )


def separable_head(inputs: int, outputs: int) -> nn.Sequential:
    """Return SSDLite's prediction layer: 3x3 depthwise, 1x1 convolution (MobileNetV2, section 6.2)."""
    return nn.Sequential(conv_norm(inputs, inputs, 3, groups=inputs), nn.Conv2d(inputs, outputs, 1))


class TopDown(nn.Module):
    """A top-down path from coarse to fine maps (FPN, Lin et al. 2017, section 3), by separable convolutions.
    Maps get `width` channels and keep their size; with `num_maps` only the finest are returned.
    """

    def __init__(self, channels: Sequence[int], *, width: int, num_maps: int | None = None) -> None:
        super().__init__()
        self.laterals = nn.ModuleList(conv_norm(c, width, 1) for c in channels)
        self.smooths = nn.ModuleList(
            nn.Sequential(conv_norm(width, width, 3, groups=width), conv_norm(width, width, 1))
            for _ in channels[:num_maps]
        )

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        sides = [lateral(m) for lateral, m in zip(self.laterals, maps, strict=True)]
        merged = [sides[-1]]
        for side in reversed(sides[:-1]):
            merged.append(side + F.interpolate(merged[-1], size=side.shape[-2:], mode="nearest"))
        # The finest first; there may be fewer to return than were merged.
        return [smooth(m) for smooth, m in zip(self.smooths, reversed(merged), strict=False)]
