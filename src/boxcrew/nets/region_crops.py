"""Warped crops of regions (R-CNN, Girshick et al. 2014, appendix A)."""

from __future__ import annotations

import torch
from torch import Tensor


def crop_regions(images: Tensor, boxes: Tensor, *, size: int, context: int) -> Tensor:
    """Return the regions (B, K, 4), xyxy in pixels, of images (B, C, H, W) as crops (B * K, C, size, size).

    A region is stretched so that, in its crop, `context` pixels on each side show what is around it. Pixels
    outside of the image are 0, which is the mean color of normalized images.
    """
    from torchvision.ops import roi_align

    middle, half = (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]) / 2
    half = half * (size / (size - 2 * context))
    grown = torch.cat((middle - half, middle + half), dim=-1).to(images.dtype)
    numbers = torch.arange(boxes.shape[0], device=boxes.device).to(images.dtype)
    rows = torch.cat((numbers[:, None, None].expand(*boxes.shape[:2], 1), grown), dim=-1).flatten(0, 1)
    # As many samples of a pixel as it covers pixels of the image: nothing is stepped over.
    crops: Tensor = roi_align(images, rows, size, 1.0, -1, aligned=True)
    return crops
