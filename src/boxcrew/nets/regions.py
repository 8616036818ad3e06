"""Pooling of regions from feature maps, with shapes that do not depend on the map of a region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

BINS = 7  # of a region, in each direction
_SAMPLES = 2  # of a bin, in each direction
_CANONICAL_SIDE, _CANONICAL_LEVEL = 224, 4  # a region of this side belongs to the map of stride 2**4

Pooling = Literal["align", "max"]


def map_of_region(boxes: Tensor, strides: Sequence[int]) -> Tensor:
    """Return (…,) the index of the map that each region (…, 4) is pooled from, by its area (Lin et al. 2017,
    equation 1); `strides` are those of the maps, finest first.
    """
    low, high = (round(math.log2(stride)) for stride in (strides[0], strides[-1]))
    area = (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)
    level = _CANONICAL_LEVEL + torch.log2(area.sqrt() / _CANONICAL_SIDE) + 1e-6
    return level.floor().clamp(min=low, max=high).long() - low


def pool_regions(maps: Sequence[Tensor], strides: Sequence[int], boxes: Tensor, *, how: Pooling) -> Tensor:
    """Return the features (B * K, C, 7, 7) of regions (B, K, 4), xyxy in pixels inside the input, from maps
    (B, C, H, W). `align` is RoIAlign with 2 x 2 samples a bin, `max` is RoI pooling.
    """
    exact = torch.promote_types(maps[0].dtype, torch.float32)  # positions need more than half precision
    maps, boxes = [features.to(exact) for features in maps], boxes.to(exact)
    level = map_of_region(boxes, strides)
    return (_align if how == "align" else _pool_max)(maps, strides, boxes, level)


def _pool_max(maps: Sequence[Tensor], strides: Sequence[int], boxes: Tensor, level: Tensor) -> Tensor:
    from torchvision.ops import roi_pool

    images = torch.arange(boxes.shape[0], device=boxes.device).to(boxes.dtype)
    rows = torch.cat((images[:, None, None].expand(*boxes.shape[:2], 1), boxes), dim=-1).flatten(0, 1)
    pooled: Tensor = roi_pool(maps[0], rows, BINS, 1 / strides[0])
    for index, (features, stride) in enumerate(zip(maps, strides, strict=True)):
        if index:  # each map gives all regions: which of them it must give depends on data
            belongs = (level == index).reshape(-1, 1, 1, 1)
            pooled = torch.where(belongs, roi_pool(features, rows, BINS, 1 / stride), pooled)
    return pooled


def _align(maps: Sequence[Tensor], strides: Sequence[int], boxes: Tensor, level: Tensor) -> Tensor:
    """Pool by RoIAlign (He et al. 2017, section 3) without the half cell of `aligned`, as torchvision's FPN.

    Each bin is a weighted sum of 16 cells. The cells of all maps and images are the rows of one table, of
    which `embedding_bag` makes such sums: on CPUs several times faster than `roi_align`, and every region is
    computed once, whichever map it belongs to.
    """
    cells = _Cells.of(maps, strides, level)
    low, high = boxes[..., :2] / cells.stride[..., None], boxes[..., 2:] / cells.stride[..., None]
    side = (high - low).clamp(min=1)
    x, x_weight = _neighbors(low[..., 0], side[..., 0], cells.width)
    y, y_weight = _neighbors(low[..., 1], side[..., 1], cells.height)
    image = torch.arange(boxes.shape[0], device=boxes.device)[:, None]
    start = cells.first + image * cells.height * cells.width  # (B, K)
    rows = (start[..., None, None] + y * cells.width[..., None, None])[:, :, :, None, :, None]
    index = rows + x[:, :, None, :, None, :]  # (B, K, 7, 7, 4, 4)
    weight = y_weight[:, :, :, None, :, None] * x_weight[:, :, None, :, None, :]
    table = torch.cat([features.permute(0, 2, 3, 1).flatten(0, 2) for features in maps])
    num = (2 * _SAMPLES) ** 2
    pooled = F.embedding_bag(
        index.reshape(-1, num), table, per_sample_weights=weight.reshape(-1, num), mode="sum"
    )
    return pooled.reshape(-1, BINS, BINS, table.shape[1]).permute(0, 3, 1, 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cells:
    """The map that each region belongs to, as integers (B, K)."""

    stride: Tensor
    height: Tensor
    width: Tensor
    first: Tensor  # row of the map's first cell in the table

    @classmethod
    def of(cls, maps: Sequence[Tensor], strides: Sequence[int], level: Tensor) -> _Cells:
        heights, widths = ([features.shape[side] for features in maps] for side in (2, 3))
        firsts = [0]
        for features in maps[:-1]:
            firsts.append(firsts[-1] + features.shape[0] * features.shape[2] * features.shape[3])
        columns = (strides, heights, widths, firsts)
        stride, height, width, first = (
            torch.tensor(values, device=level.device)[level] for values in columns
        )
        return cls(stride=stride, height=height, width=width, first=first)


def _neighbors(start: Tensor, side: Tensor, num_cells: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cells (B, K, 7, 4) that the samples of each bin lie between, and their weights, in one
    direction. `start`, `side` and `num_cells` (B, K) are in cells. Samples beyond the map weigh nothing.
    """
    num = BINS * _SAMPLES
    steps = (torch.arange(num, device=start.device, dtype=start.dtype) + 0.5) / num
    at = start[..., None] + side[..., None] * steps
    last = (num_cells - 1)[..., None]
    inside = (at >= -1) & (at <= num_cells[..., None])
    at = at.clamp(min=0).minimum(last.to(at.dtype))
    low = at.floor()
    share = at - low
    cells = torch.stack((low.long(), (low.long() + 1).minimum(last)), dim=-1)
    weights = torch.stack((1 - share, share), dim=-1) * inside[..., None] / _SAMPLES
    shape = (*start.shape, BINS, 2 * _SAMPLES)
    return cells.reshape(shape), weights.reshape(shape)
