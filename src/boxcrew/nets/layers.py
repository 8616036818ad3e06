"""Small layers that several networks share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.torch_tools.batch_norm import batch_norm


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode, and after it each as it was: frozen BatchNorms are not in training
    mode while the rest of a network is.
    """
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


class Normalize(nn.Module):
    """0..255 pixels -> what the weights were trained on. Mean and deviation are buffers: they are saved with
    the weights and can never be separated from them.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """`mean` and `std`, a number for each channel, are of 0..1 pixels."""
        super().__init__()
        self.register_buffer("mean", torch.empty(len(mean)))
        self.register_buffer("std", torch.empty(len(std)))
        self.set(mean, std)

    def set(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean.copy_(torch.tensor(mean) * 255)
        self.std.copy_(torch.tensor(std) * 255)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) uint8 or float, 0..255 -> float of about unit size, in the same memory format."""
        mean = self.mean.reshape(1, -1, 1, 1)
        return (images.to(mean.dtype) - mean) / self.std.reshape(1, -1, 1, 1)


class L2Norm(nn.Module):
    """Scales each position's features to length 1, then each channel by a learned factor (SSD, 3.1)."""

    def __init__(self, channels: int, *, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), scale))

    def forward(self, features: Tensor) -> Tensor:
        return self.scale.reshape(1, -1, 1, 1) * F.normalize(features)


class SingleCellNorm(nn.BatchNorm2d):
    """BatchNorm that can also train on one image whose map is a single cell. One value has no deviation, so
    such a map is normalized by the running statistics.
    """

    def forward(self, features: Tensor) -> Tensor:
        assert self.momentum is not None
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return batch_norm(
            features,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum,
            self.eps,
        )


def conv_norm(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU6; padded so that stride 1 keeps the map's size."""
    return nn.Sequential(
        nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=(kernel - 1) // 2, groups=groups, bias=False
        ),
        SingleCellNorm(outputs, eps=0.001, momentum=0.03),
        nn.ReLU6(inplace=True),
    )


def separable_head(inputs: int, outputs: int) -> nn.Sequential:
    """A 3x3 depthwise and a 1x1 convolution: SSDLite's prediction layer (MobileNetV2, section 6.2)."""
    return nn.Sequential(conv_norm(inputs, inputs, 3, groups=inputs), nn.Conv2d(inputs, outputs, 1))
