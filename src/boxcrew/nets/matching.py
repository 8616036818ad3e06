"""Which default box answers for which object, and which boxes without one are learnt from."""

from __future__ import annotations

import torch
from torch import Tensor

NO_MATCH = -1

# IoUs are computed for a few images at a time, so that crowded photos cannot exhaust the memory.
_MAX_PAIRS = 8_000_000


def match(boxes: Tensor, valid: Tensor, anchors: Tensor, *, threshold: float) -> Tensor:
    """(B, A) the index of the object each default box answers for, or NO_MATCH (SSD, section 2.2).

    `boxes` (B, M, 4) and `anchors` (A, 4) are xyxy in the same units; `valid` (B, M) marks the real objects
    among the padding. A default box takes the object it overlaps most if their IoU reaches `threshold`; and
    each object takes a default box of its own, whatever their IoU, so that none is left out.
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
    from torchvision.ops import box_iou

    num_images, num_objects = valid.shape
    iou = box_iou(boxes.reshape(-1, 4), anchors).reshape(num_images, num_objects, -1)
    iou = iou.masked_fill(~valid[..., None], -1.0)
    best_iou, best_object = iou.max(dim=1)
    matched = best_object.masked_fill(best_iou < threshold, NO_MATCH)
    return _force(matched, iou)


def _force(matched: Tensor, iou: Tensor) -> Tensor:
    """Lets the objects of each image choose in turn, the one with the greatest overlap first, the default box
    that overlaps it most of those not chosen yet. Without turns, of two small objects that want the same box
    one would be left out. What overlaps no default box (padding, an empty box) chooses none.
    """
    forced = matched.clone()
    chosen = torch.zeros_like(matched, dtype=torch.bool)
    images = torch.arange(len(iou), device=iou.device)
    turns = iou.amax(dim=2).argsort(dim=1, descending=True, stable=True)
    for objects in turns.unbind(dim=1):
        best_iou, best_anchor = iou[images, objects].masked_fill(chosen, 0.0).max(dim=1)
        chooses = best_iou > 0
        forced[images, best_anchor] = torch.where(chooses, objects, forced[images, best_anchor])
        chosen[images, best_anchor] |= chooses
    return forced


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
