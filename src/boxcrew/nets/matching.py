"""Which default box answers for which object, and which boxes without one are learnt from."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.ops import box_iou

NO_MATCH = -1

# IoUs are computed for a few images at a time, so that crowded photos cannot exhaust the memory.
_MAX_PAIRS = 8_000_000


def match(boxes: Tensor, valid: Tensor, anchors: Tensor, *, threshold: float) -> Tensor:
    """(B, A) the index of the object each default box answers for, or NO_MATCH (SSD, section 2.2).

    `boxes` (B, M, 4) and `anchors` (A, 4) are xyxy in the same units; `valid` (B, M) marks the real objects
    among the padding. A default box takes the object it overlaps most if their IoU reaches `threshold`; and
    each object takes the default box that overlaps it most, whatever their IoU, so that none is left out.
    """
    num_images, num_objects = valid.shape
    images_at_once = max(1, _MAX_PAIRS // max(1, num_objects * len(anchors)))
    parts = [
        _match_some(
            boxes[i : i + images_at_once],
            valid[i : i + images_at_once],
            anchors,
            threshold=threshold,
        )
        for i in range(0, num_images, images_at_once)
    ]
    return torch.cat(parts)


def _match_some(boxes: Tensor, valid: Tensor, anchors: Tensor, *, threshold: float) -> Tensor:
    num_images, num_objects = valid.shape
    iou = box_iou(boxes.reshape(-1, 4), anchors).reshape(num_images, num_objects, -1)
    iou = iou.masked_fill(~valid[..., None], -1.0)
    best_iou, best_object = iou.max(dim=1)
    matched = best_object.masked_fill(best_iou < threshold, NO_MATCH)
    best_anchor = iou.argmax(dim=2)
    return _force(matched, best_anchor, valid)


def _force(matched: Tensor, best_anchor: Tensor, valid: Tensor) -> Tensor:
    """Gives every valid object its best default box. Where two objects want the same one the later in the
    list has it: `scatter_reduce` decides by the index, so the outcome does not depend on thread timing.
    """
    objects = torch.arange(valid.shape[1], device=valid.device).expand_as(best_anchor)
    claims = objects.masked_fill(~valid, NO_MATCH)
    forced = torch.full_like(matched, NO_MATCH).scatter_reduce(1, best_anchor, claims, reduce="amax")
    return torch.where(forced >= 0, forced, matched)


def hard_negatives(loss: Tensor, positive: Tensor, *, ratio: int) -> Tensor:
    """(B, A) mask of the negatives to learn from: in each image the `ratio` x positives with the greatest
    loss; ties are broken by position, so exactly that many are taken (or all there are).
    """
    candidates = loss.detach().masked_fill(positive, -1.0)
    order = candidates.argsort(dim=1, descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(
        1, order, torch.arange(loss.shape[1], device=loss.device).expand_as(order)
    )
    wanted = positive.sum(dim=1, keepdim=True) * ratio
    return (ranks < wanted) & ~positive
