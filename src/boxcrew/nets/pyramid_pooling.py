"""Spatial pyramid pooling of regions (SPPNet, He et al. 2014, sections 2.2 and 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def pyramid_pool(features: Tensor, boxes: Tensor, *, stride: int, levels: Sequence[int]) -> Tensor:
    """Return the features (B * K, C * bins) of regions (B, K, 4), xyxy in pixels, from a map (B, C, H, W).

    Level n of the pyramid has n x n bins, each the maximum of its cells, which overlap as those of
    `adaptive_max_pool2d` do. A region has at least one cell.
    """
    height, width = features.shape[-2:]
    y = _bins(boxes[..., 1], boxes[..., 3], height, stride=stride, levels=levels)
    x = _bins(boxes[..., 0], boxes[..., 2], width, stride=stride, levels=levels)
    index = torch.cat(
        [_rows(rows, columns, height, width) for rows, columns in zip(y, x, strict=True)], dim=2
    )
    table = _maxima(features)  # (B, tables * H * W, C)
    image = torch.arange(boxes.shape[0], device=boxes.device) * table.shape[1]
    index = index + image[:, None, None, None]
    pooled = F.embedding_bag(index.reshape(-1, 4), table.flatten(0, 1), mode="max")
    return pooled.reshape(boxes.shape[0] * boxes.shape[1], index.shape[2], -1).transpose(1, 2).flatten(1)


def _bins(
    low: Tensor, high: Tensor, num_cells: int, *, stride: int, levels: Sequence[int]
) -> list[tuple[Tensor, Tensor]]:
    """Return for each level the first cell and the number of cells, both (B, K, n), of each bin along one
    axis, for windows from `low` to `high` (B, K) in pixels.
    """
    first, last = (low / stride).floor() + 1, (high / stride).ceil() - 1  # appendix A: cells inside
    middle = ((low + high) / 2 / stride).floor()
    is_empty = first > last
    first, last = (
        torch.where(is_empty, middle, cell).long().clamp(0, num_cells - 1) for cell in (first, last)
    )
    size = (last - first + 1)[..., None]
    bins = []
    for n in levels:
        i = torch.arange(n, device=low.device)
        start, end = i * size // n, -(-(i + 1) * size // n)
        bins.append((first[..., None] + start, end - start))
    return bins


def _exponents(num_cells: int) -> int:
    """Return how many powers of two, from 1 on, are at most `num_cells`."""
    return num_cells.bit_length()


def _maxima(features: Tensor) -> Tensor:
    """Return (B, tables * H * W, C) the maxima of all windows whose sides are powers of two, by their first
    cell: every window is the union of four of these.
    """
    height, width = features.shape[-2:]
    tables = []
    rows = features
    for y in range(_exponents(height)):
        if y:
            rows = _doubled(rows, 2 ** (y - 1), dim=2)
        both = rows
        for x in range(_exponents(width)):
            if x:
                both = _doubled(both, 2 ** (x - 1), dim=3)
            tables.append(both)
    return torch.stack(tables, dim=1).permute(0, 1, 3, 4, 2).flatten(1, 3)


def _doubled(maxima: Tensor, side: int, *, dim: int) -> Tensor:
    """Return the maxima of windows of twice the side; those that leave the map are never asked for."""
    later = maxima.narrow(dim, side, maxima.shape[dim] - side)
    shape = list(maxima.shape)
    shape[dim] = side
    rest = maxima.new_full(shape, -torch.inf)
    return maxima.maximum(torch.cat((later, rest), dim=dim))


def _rows(y: tuple[Tensor, Tensor], x: tuple[Tensor, Tensor], height: int, width: int) -> Tensor:
    """Return the four rows (B, K, n * n, 4) of `_maxima` that together are each bin."""
    (top, rows), (left, columns) = y, x
    y_power, x_power = _log2(rows), _log2(columns)
    bottom, right = top + rows - 2**y_power, left + columns - 2**x_power
    table = y_power[..., :, None] * _exponents(width) + x_power[..., None, :]
    corners = [
        (table * height + first[..., :, None]) * width + second[..., None, :]
        for first in (top, bottom)
        for second in (left, right)
    ]
    return torch.stack(corners, dim=-1).flatten(2, 3)


def _log2(counts: Tensor) -> Tensor:
    """Return the exponent of the greatest power of two that is at most each count, which is at least 1."""
    return torch.log2(counts.double() + 0.5).floor().long()
