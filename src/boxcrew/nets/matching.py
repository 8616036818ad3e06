"""Matching of default boxes to objects, and the choice of unmatched boxes to learn from."""

from __future__ import annotations

import torch
from torch import Tensor

NO_MATCH = -1

# IoUs are computed for a few images at a time, so that crowded images cannot exhaust the memory.
_MAX_PAIRS = 8_000_000


def match(boxes: Tensor, valid: Tensor, anchors: Tensor, *, threshold: float) -> Tensor:
    """Return (B, A), the index of the object that each default box is matched to, or NO_MATCH.

    `boxes` (B, M, 4) and `anchors` (A, 4) are xyxy in the same units; `valid` (B, M) marks the real objects
    among the padding. A default box is matched to the object it overlaps most if their IoU is at least
    `threshold`; each object also gets one default box of its own, whatever their IoU (SSD, section 2.2).
    """
    images_at_once = max(1, _MAX_PAIRS // max(1, valid.shape[1] * len(anchors)))
    chunks = zip(torch.split(boxes, images_at_once), torch.split(valid, images_at_once), strict=True)
    return torch.cat([_match_some(*chunk, anchors, threshold=threshold) for chunk in chunks])


def _match_some(boxes: Tensor, valid: Tensor, anchors: Tensor, *, threshold: float) -> Tensor:
    from torchvision.ops import box_iou

    num_images, num_objects = valid.shape
    iou = box_iou(boxes.reshape(-1, 4), anchors).reshape(num_images, num_objects, -1)
    iou = iou.masked_fill(~valid[..., None], -1.0)
    best_iou, best_object = iou.max(dim=1)
    matched = best_object.masked_fill(best_iou < threshold, NO_MATCH)
    return _force(matched, iou)


def _force(matched: Tensor, iou: Tensor) -> Tensor:
    """Give each object the default box that overlaps it most among those not yet given away.

    Objects take turns, the one with the greatest overlap first; otherwise one of two small objects with the
    same best box would get none. What overlaps no default box (padding, an empty box) gets none.
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
    """Return the mask (B, A) of the negatives to learn from.

    In each image these are the `ratio` x positives with the greatest loss, or all if there are fewer. Ties
    are broken by position.
    """
    candidates = loss.detach().masked_fill(positive, -1.0)
    order = candidates.argsort(dim=1, descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(
        1, order, torch.arange(loss.shape[1], device=loss.device).expand_as(order)
    )
    wanted = positive.sum(dim=1, keepdim=True) * ratio
    return (ranks < wanted) & ~positive
