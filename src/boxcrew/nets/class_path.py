"""A second opinion on classes: scores from a backbone that has learned to tell many classes apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.backbones import Backbone
from boxcrew.nets.layers import Normalize, TopDown, conv_norm

STRIDES = (8, 16, 32, 64)
"""The strides of the maps that scores are made for."""

_FINEST_STRIDE, _NUM_MAPS = 16, 2  # of the backbone: its finer maps know edges, not classes
_WIDTH = 256
_LAST = 2  # the layer of a head that scores classes


class ClassPath(nn.Module):
    """A timm network, a top-down path between its maps of strides 16 and 32, and layers that score classes.

    The scores are added to those of a detector. They begin at zero, so that a detector with weights of its
    own begins with these alone.
    """

    def __init__(self, name: str, num_classes: int) -> None:
        super().__init__()
        setting = "detector.class_backbone"
        self.backbone = Backbone(name, finest_stride=_FINEST_STRIDE, num_maps=_NUM_MAPS, setting=setting)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        self.neck = TopDown(self.backbone.channels, width=_WIDTH)
        self.heads = nn.ModuleList(_head(num_classes) for _ in range(_NUM_MAPS))

    def forward(self, images: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
        """Return scores (B, P, C) for the P cells of maps of STRIDES, which have these heights and widths."""
        maps = self.neck(self.backbone(self.normalize(images)))
        fine, coarse = (head(features) for head, features in zip(self.heads, maps, strict=True))
        each = (fine, fine, coarse, F.avg_pool2d(coarse, 2, ceil_mode=True))
        resized = [_resize(scores, size).flatten(2) for scores, size in zip(each, sizes, strict=True)]
        return torch.cat(resized, dim=2).transpose(1, 2)

    def class_tensors(self) -> list[str]:
        """Return the names of the tensors with a row for each class."""
        return [f"heads.{i}.{_LAST}.{name}" for i in range(_NUM_MAPS) for name in ("weight", "bias")]


def _head(num_classes: int) -> nn.Sequential:
    last = nn.Conv2d(_WIDTH, num_classes, 1)
    assert last.bias is not None
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(conv_norm(_WIDTH, _WIDTH, 3, groups=_WIDTH), conv_norm(_WIDTH, _WIDTH, 1), last)


def _resize(scores: Tensor, size: tuple[int, int]) -> Tensor:
    return scores if scores.shape[-2:] == size else F.interpolate(scores, size=size, mode="nearest")
