"""The regions of training images with what closed forms learn of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boxcrew.core.types import Batch
from boxcrew.nets.linear_svm import RegionLabels
from boxcrew.nets.region_targets import Truth

_NEAR = 16  # regions of an image that learn the way to an object, at most: the first of them


@dataclass(frozen=True, kw_only=True, eq=False)
class LabeledRegions:
    """The proposals of images, then their objects, and what each valid one of them is."""

    boxes: Tensor  # (B, K, 4)
    valid: Tensor  # (B, K)
    images: tuple[RegionLabels, ...]

    @classmethod
    def of(cls, batch: Batch, num_classes: int) -> LabeledRegions:
        from torchvision.ops import box_iou

        regions, truth = batch.extra["regions"], Truth.of(batch.targets, torch.float32)
        boxes = torch.cat((regions, truth.boxes), dim=1)
        valid = torch.cat((batch.extra["regions_valid"], truth.learned), dim=1)
        nothing = torch.full(regions.shape[:2], -1)
        classes = torch.cat((nothing, truth.labels), dim=1)
        # By the class of the object, and 0 for a class that the image has no object of.
        iou = box_iou(boxes, truth.boxes)[..., None]
        is_class = truth.labels[:, None, :, None] == torch.arange(num_classes)
        overlaps = (iou * is_class).amax(dim=2)
        images = tuple(
            RegionLabels(overlaps=overlaps[i][keep].numpy(), classes=classes[i][keep].numpy())
            for i, keep in enumerate(valid)
        )
        return cls(boxes=boxes, valid=valid, images=images)


@dataclass(frozen=True, kw_only=True, eq=False)
class NearRegions:
    """Some proposals of each image that overlap an object, and that object."""

    boxes: Tensor  # (B, K, 4)
    objects: Tensor  # (B, K, 4)
    classes: Tensor  # (B, K)
    valid: Tensor  # (B, K)


def near_objects(batch: Batch, *, min_iou: float) -> NearRegions:
    """Return the first proposals of each image that overlap a learned object by more than `min_iou`, with the
    object that each overlaps most.
    """
    from torchvision.ops import box_iou

    from boxcrew.nets.static import indices_of

    regions, truth = batch.extra["regions"], Truth.of(batch.targets, torch.float32)
    iou = box_iou(regions, truth.boxes).masked_fill(~truth.learned[:, None], -1)
    overlap, owner = iou.max(dim=-1)
    chosen = indices_of((overlap > min_iou) & batch.extra["regions_valid"], count=_NEAR)
    owner = chosen.gather(owner)
    return NearRegions(
        boxes=chosen.gather(regions),
        objects=truth.boxes_of(owner),
        classes=truth.labels.gather(1, owner),
        valid=chosen.valid,
    )
