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
        statistics = self.running_mean, self.running_var
        return batch_norm(
            features, *statistics, self.weight, self.bias, self.training, self.momentum, self.eps
        )


def conv_norm(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution, BatchNorm and ReLU6, padded so that stride 1 keeps the size of the map."""
    return nn.Sequential(
        nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=(kernel - 1) // 2, groups=groups, bias=False
        ),
        SingleCellNorm(outputs, eps=0.001, momentum=0.03),
        nn.ReLU6(inplace=True),
    )


def separable_head(inputs: int, outputs: int) -> nn.Sequential:
    """Return SSDLite's prediction layer: 3x3 depthwise, 1x1 convolution (MobileNetV2, section 6.2)."""
    return nn.Sequential(conv_norm(inputs, inputs, 3, groups=inputs), nn.Conv2d(inputs, outputs, 1))
