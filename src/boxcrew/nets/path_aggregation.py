"""The neck of PicoDet (Yu et al. 2021, section 3.1): features go from coarse to fine maps, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.layers import SingleCellNorm


def conv_swish(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution, BatchNorm and Hardswish, padded so that stride 2 halves a map, rounded up."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, SingleCellNorm(outputs), nn.Hardswish())


def separable_swish(inputs: int, outputs: int, *, stride: int = 1) -> nn.Sequential:
    """Return a 5 x 5 depthwise and a 1 x 1 convolution."""
    depthwise = conv_swish(inputs, inputs, 5, stride=stride, groups=inputs)
    return nn.Sequential(depthwise, conv_swish(inputs, outputs, 1))


class PathAggregation(nn.Module):
    """A top-down and then a bottom-up path between maps, each half the size of the one before it, rounded up.
    All maps get `width` channels; one more comes last, half the size of the coarsest.
    """

    def __init__(self, channels: Sequence[int], *, width: int) -> None:
        super().__init__()
        steps = len(channels) - 1
        self.laterals = nn.ModuleList(conv_swish(c, width, 1) for c in channels)
        self.top_down = nn.ModuleList(_merge(width) for _ in range(steps))  # the coarsest first
        self.downs = nn.ModuleList(separable_swish(width, width, stride=2) for _ in range(steps))
        self.bottom_up = nn.ModuleList(_merge(width) for _ in range(steps))  # the finest first
        self.last_lateral = separable_swish(width, width, stride=2)
        self.last_down = separable_swish(width, width, stride=2)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        sides = [lateral(m) for lateral, m in zip(self.laterals, maps, strict=True)]
        inner = [sides[-1]]
        for merge, side in zip(self.top_down, reversed(sides[:-1]), strict=True):
            larger = F.interpolate(inner[0], size=side.shape[-2:], mode="nearest")
            inner.insert(0, merge(torch.cat((larger, side), dim=1)))
        outer = [inner[0]]
        for down, merge, side in zip(self.downs, self.bottom_up, inner[1:], strict=True):
            outer.append(merge(torch.cat((down(outer[-1]), side), dim=1)))
        return [*outer, self.last_lateral(sides[-1]) + self.last_down(outer[-1])]


def _merge(width: int) -> nn.Sequential:
    """Return the layers that mix two maps of `width` channels into one."""
    return nn.Sequential(separable_swish(2 * width, 2 * width), separable_swish(2 * width, width))
