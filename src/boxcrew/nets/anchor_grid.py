"""Anchors of region proposal networks: boxes of a few fixed shapes at each cell of each feature map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Shape = tuple[float, float]
"""Width and height of an anchor in pixels of the input."""

_PAIRS = 250_000  # IoUs computed at once: few enough to stay in a processor's cache


@dataclass(frozen=True, kw_only=True)
class AnchorGrid:
    """The anchors of one feature map: every shape at every cell."""

    stride: int  # pixels between cells
    shapes: tuple[Shape, ...]
    at_corners: bool  # anchors are centered on the upper left corners of cells, not on their middles

    @property
    def first(self) -> float:
        """The x and y of the first center."""
        return 0.0 if self.at_corners else self.stride / 2

    def on_map(self, height: int, width: int, *, like: Tensor) -> Tensor:
        """Return the anchors (height * width * shapes, 4), center and size in pixels, row by row, with the
        type and the device of `like`.
        """
        x, y = (
            torch.arange(num, dtype=like.dtype, device=like.device) * self.stride + self.first
            for num in (width, height)
        )
        centers = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).reshape(-1, 1, 2)
        shapes = like.new_tensor(self.shapes).expand(len(centers), -1, 2)
        return torch.cat((centers.expand_as(shapes), shapes), dim=-1).reshape(-1, 4)


def cell_shapes(sizes: Iterable[float], ratios: Iterable[float], *, rounded: bool) -> tuple[Shape, ...]:
    """Return the anchors of a cell: for each ratio of height to width one of each size, which is the root of
    its area. `rounded` makes the half of each side whole, as torchvision does.
    """
    sizes = tuple(sizes)
    shapes = [(size / ratio**0.5, size * ratio**0.5) for ratio in ratios for size in sizes]
    if rounded:
        shapes = [(2 * round(width / 2), 2 * round(height / 2)) for width, height in shapes]
    return tuple((float(width), float(height)) for width, height in shapes)


def best_overlaps(boxes: Tensor, grids: Sequence[AnchorGrid], extent: tuple[int, int]) -> Tensor:
    """Return the IoU (N,) of each box (N, 4), xyxy in pixels, with its best anchor on an input of that
    (width, height). Of all anchors of one shape that of the nearest cell is the best, so only it is computed.
    """
    num_shapes = max(len(grid.shapes) for grid in grids)
    chunks = torch.split(boxes, max(1, _PAIRS // num_shapes))
    return torch.cat(
        [torch.stack([_best_of(chunk, g, extent) for g in grids]).amax(dim=0) for chunk in chunks]
    )


def _best_of(boxes: Tensor, grid: AnchorGrid, extent: tuple[int, int]) -> Tensor:
    last = torch.tensor([-(-side // grid.stride) - 1 for side in extent])
    nearest = ((boxes[:, :2] + boxes[:, 2:]) / 2 - grid.first) / grid.stride
    centers = (nearest.round().clamp(min=0).minimum(last) * grid.stride + grid.first)[:, None]
    shapes = torch.tensor(grid.shapes)[None]
    low = (centers - shapes / 2).maximum(boxes[:, None, :2])
    high = (centers + shapes / 2).minimum(boxes[:, None, 2:])
    shared = (high - low).clamp(min=0).prod(dim=2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)[:, None] + shapes.prod(dim=2)
    return (shared / (areas - shared)).amax(dim=1)
