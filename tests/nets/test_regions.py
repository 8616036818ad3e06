"""Regions are pooled as torchvision pools them, from the map that their area says."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign, roi_align, roi_pool

from boxcrew.nets.regions import Pooling, map_of_region, pool_regions

SIDE = 512
STRIDES = (4, 8, 16, 32)


def some_maps(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(2, 5, SIDE // s, SIDE // s, generator=draw, dtype=dtype) for s in STRIDES]


def some_boxes(num: int = 40) -> Tensor:
    """Return boxes (2, num, 4) of all sizes, some of them at the edges or tiny."""
    draw = torch.Generator().manual_seed(1)
    sides = 2 ** (9 * torch.rand(2, num, 2, generator=draw))
    low = torch.rand(2, num, 2, generator=draw) * (SIDE - sides)
    boxes = torch.cat((low, low + sides), dim=-1)
    boxes[0, :4] = torch.tensor(
        [[0, 0, SIDE, SIDE], [511.5, 511.5, 512, 512], [0, 100, 0.01, 512], [506.0, 0, 512, 3]]
    )
    return boxes


def test_aligned_pooling_is_torchvisions_over_all_maps() -> None:
    maps, boxes = some_maps(), some_boxes()
    theirs = MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2)(
        OrderedDict((str(i), features) for i, features in enumerate(maps)), list(boxes), [(SIDE, SIDE)] * 2
    )
    ours = pool_regions(maps, STRIDES, boxes, how="align")
    assert len(set(map_of_region(boxes, STRIDES).flatten().tolist())) == len(STRIDES)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_gradients_of_aligned_pooling_are_torchvisions() -> None:
    features = some_maps(torch.float64)[1].requires_grad_()
    boxes = some_boxes(10).double()
    ours = pool_regions([features], [8], boxes, how="align")
    theirs = roi_align(features, list(boxes), 7, 1 / 8, 2)
    upstream = torch.randn_like(theirs)
    wanted, found = (torch.autograd.grad(pooled, features, upstream)[0] for pooled in (theirs, ours))
    torch.testing.assert_close(found, wanted)


def test_max_pooling_is_torchvisions_on_the_map_of_each_region() -> None:
    maps, boxes = some_maps(), some_boxes()
    ours = pool_regions(maps, STRIDES, boxes, how="max").reshape(*boxes.shape[:2], 5, 7, 7)
    levels = map_of_region(boxes, STRIDES)
    for level, stride in enumerate(STRIDES):
        theirs = roi_pool(maps[level], list(boxes), 7, 1 / stride).reshape(ours.shape)
        assert torch.equal(ours[levels == level], theirs[levels == level])


def test_a_region_of_224_pixels_belongs_to_stride_16() -> None:
    boxes = torch.tensor([[0.0, 0, s, s] for s in (0, 10, 111, 112, 223, 224, 447, 448, 2000)])
    assert map_of_region(boxes, STRIDES).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert map_of_region(boxes, [32, 32]).tolist() == [0] * len(boxes)


@pytest.mark.parametrize("how", ["align", "max"])
def test_half_precision_pools_at_exact_positions_and_tensors_may_have_no_data(how: Pooling) -> None:
    maps, boxes = some_maps(), some_boxes()
    halves = [features.bfloat16() for features in maps]
    pooled = pool_regions(halves, STRIDES, boxes, how=how)
    exact = pool_regions([features.float() for features in halves], STRIDES, boxes, how=how)
    assert torch.equal(pooled, exact)
    bare = pool_regions([features.to("meta") for features in maps], STRIDES, boxes.to("meta"), how=how)
    assert bare.shape == pooled.shape
