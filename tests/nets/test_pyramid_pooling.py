"""Pyramid pooling against torch's adaptive pooling of each window."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.pyramid_pooling import pyramid_pool

STRIDE = 16
LEVELS = (1, 2, 3, 6)


def window(low: float, high: float, num_cells: int) -> slice:
    """Return the cells of a region along one axis, as in appendix A of the paper."""
    first, last = math.floor(low / STRIDE) + 1, math.ceil(high / STRIDE) - 1
    if first > last:
        first = last = math.floor((low + high) / 2 / STRIDE)
    first, last = (min(max(cell, 0), num_cells - 1) for cell in (first, last))
    return slice(first, last + 1)


@pytest.mark.parametrize(("height", "width"), [(14, 14), (5, 9), (1, 1)])
def test_equals_adaptive_pooling(height: int, width: int) -> None:
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(2, 3, height, width, generator=draw)
    limits = torch.tensor([width, height]) * STRIDE
    corners = torch.rand(2, 40, 2, 2, generator=draw) * limits
    boxes = torch.cat((corners.amin(dim=2), corners.amax(dim=2)), dim=-1)
    boxes[0, 0] = 0  # padding
    pooled = pyramid_pool(features, boxes, stride=STRIDE, levels=LEVELS).reshape(2, 40, 3, -1)
    for image in range(2):
        for number, (x0, y0, x1, y1) in enumerate(boxes[image].tolist()):
            cells = features[image][:, window(y0, y1, height), window(x0, x1, width)]
            wanted = torch.cat([F.adaptive_max_pool2d(cells, n).flatten(1) for n in LEVELS], dim=1)
            assert torch.equal(pooled[image, number], wanted)


def test_gradients_go_to_the_maxima() -> None:
    features = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    boxes = torch.tensor([[[0.0, 0.0, 64.0, 64.0]]])
    pooled = pyramid_pool(features, boxes, stride=STRIDE, levels=(1,))
    (gradient,) = torch.autograd.grad(pooled.sum(), [features])
    # Cells 1 to 3 of each axis are inside, and the last is the greatest.
    assert gradient.flatten().tolist() == [0.0] * 15 + [1.0]
