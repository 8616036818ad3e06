"""Paths from the maps of a backbone to maps of one depth (Lin et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.layers import SingleCellNorm


class Fpn(nn.Module):
    """The feature pyramid of the paper, section 3: 1 x 1 convolutions, sums from coarse to fine, and 3 x 3
    convolutions. All maps get `width` channels. With `norms` a BatchNorm follows each convolution.
    """

    def __init__(self, channels: Sequence[int], *, width: int, norms: bool) -> None:
        super().__init__()
        self.laterals = nn.ModuleList(_convolution(num, width, 1, norms=norms) for num in channels)
        self.smooths = nn.ModuleList(_convolution(width, width, 3, norms=norms) for _ in channels)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        sides = [lateral(features) for lateral, features in zip(self.laterals, maps, strict=True)]
        merged = [sides[-1]]
        for side in reversed(sides[:-1]):
            merged.append(side + F.interpolate(merged[-1], size=side.shape[-2:], mode="nearest"))
        return [smooth(features) for smooth, features in zip(self.smooths, reversed(merged), strict=True)]


def _convolution(inputs: int, outputs: int, kernel: int, *, norms: bool) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=not norms)
    nn.init.kaiming_uniform_(layer.weight, a=1)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, SingleCellNorm(outputs)) if norms else nn.Sequential(layer)


class Narrow(nn.Module):
    """A 1 x 1 convolution of one map, for detectors without a pyramid."""

    def __init__(self, channels: int, *, width: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(channels, width, 1)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        return [self.layer(maps[0])]
