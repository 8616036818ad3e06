"""Necks: layers between a backbone and its heads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.layers import conv_norm


class TopDown(nn.Module):
    """A top-down path from coarse to fine maps (FPN, Lin et al. 2017, section 3), by separable convolutions.
    All maps get `width` channels and keep their size.
    """

    def __init__(self, channels: Sequence[int], *, width: int) -> None:
        super().__init__()
        self.laterals = nn.ModuleList(conv_norm(c, width, 1) for c in channels)
        self.smooths = nn.ModuleList(
            nn.Sequential(conv_norm(width, width, 3, groups=width), conv_norm(width, width, 1))
            for _ in channels
        )

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        sides = [lateral(m) for lateral, m in zip(self.laterals, maps, strict=True)]
        merged = [sides[-1]]
        for side in reversed(sides[:-1]):
            merged.append(side + F.interpolate(merged[-1], size=side.shape[-2:], mode="nearest"))
        return [smooth(m) for smooth, m in zip(self.smooths, reversed(merged), strict=True)]
