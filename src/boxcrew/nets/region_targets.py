"""Targets of anchors and regions: labels by their overlap with objects, and a keyed choice of some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from boxcrew.nets.anchors import BoxCoder, to_center_size
from boxcrew.nets.static import Chosen, indices_of, sample_balanced

# IoUs are computed for a few images at a time, so that crowded images cannot exhaust the memory.
_MAX_PAIRS = 8_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Truth:
    """The objects of B images, padded to M. Difficult ones are not learned, but are not background either."""

    boxes: Tensor  # (B, M, 4) xyxy in pixels of the input
    labels: Tensor  # (B, M) 0..C-1, -1 for padding
    learned: Tensor  # (B, M) bool, false for padding and difficult objects

    @classmethod
    def of(cls, targets: Mapping[str, Tensor], dtype: torch.dtype) -> Truth:
        labels = targets["labels"]
        learned = (labels >= 0) & ~targets["difficult"]
        return cls(boxes=targets["boxes"].to(dtype), labels=labels, learned=learned)

    def boxes_of(self, owner: Tensor) -> Tensor:
        """Return the boxes (B, N, 4) of these objects (B, N)."""
        return self.boxes.gather(1, owner[..., None].expand(-1, -1, 4))


@dataclass(frozen=True, kw_only=True, eq=False)
class OverlapLabels:
    """The boxes, of N, that learn an object, and those that learn the background; others learn nothing."""

    positive: Tensor  # (B, N) bool
    negative: Tensor  # (B, N) bool
    owner: Tensor  # (B, N) int64, the learned object that each box overlaps most

    def masked(self, valid: Tensor) -> OverlapLabels:
        """Return labels in which only valid boxes (B, N) learn anything."""
        return OverlapLabels(positive=self.positive & valid, negative=self.negative & valid, owner=self.owner)

    def choose(self, keys: Tensor, *, count: int, max_positive: int) -> Chosen:
        """Return at most `count` boxes to learn from, those with the smallest keys (B, N)."""
        mask = sample_balanced(self.positive, self.negative, keys, count=count, max_positive=max_positive)
        return indices_of(mask, count=count)


@dataclass(frozen=True, kw_only=True)
class OverlapRule:
    """The IoUs by which boxes learn an object or the background."""

    positive_iou: float  # at least this much: positive
    negative_iou: float  # less than this with every object: negative,
    negative_from: float = 0.0  # but at least this much with one, if the image has objects
    best_too: bool = False  # whether the boxes that overlap an object most are positive in any case


@torch.no_grad()
def label_boxes(boxes: Tensor, truth: Truth, rule: OverlapRule) -> OverlapLabels:
    """Label boxes, xyxy (B, N, 4) or (N, 4) for all images, by their greatest overlap with an object.

    A box is positive or negative by the IoUs of the rule. With `best_too` the boxes that overlap an object
    most are positive as well, if they touch it at all: they learn the object that they themselves overlap
    most (Faster R-CNN, section 3.1.2).
    """
    num_boxes, num_objects = boxes.shape[-2], truth.labels.shape[1]
    at_once = max(1, _MAX_PAIRS // max(1, num_boxes * num_objects))
    parts = []
    for start in range(0, len(truth.labels), at_once):
        rows = slice(start, start + at_once)
        some = Truth(boxes=truth.boxes[rows], labels=truth.labels[rows], learned=truth.learned[rows])
        parts.append(_label_some(boxes if boxes.ndim == 2 else boxes[rows], some, rule))
    return OverlapLabels(
        positive=torch.cat([part.positive for part in parts]),
        negative=torch.cat([part.negative for part in parts]),
        owner=torch.cat([part.owner for part in parts]),
    )


def _label_some(boxes: Tensor, truth: Truth, rule: OverlapRule) -> OverlapLabels:
    from torchvision.ops import box_iou

    iou = box_iou(truth.boxes, boxes)  # (B, M, N)
    greatest = iou.masked_fill((truth.labels < 0)[..., None], -1).amax(dim=1)  # -1: the image has no object
    near_enough = (greatest >= rule.negative_from) | (greatest < 0)
    negative = (greatest < rule.negative_iou) & near_enough
    iou = iou.masked_fill(~truth.learned[..., None], -1)
    overlap, owner = iou.max(dim=1)
    positive = overlap >= rule.positive_iou
    if rule.best_too:
        best = iou.amax(dim=2, keepdim=True)
        # An object that no box touches must not make all of them positive: they all overlap it by 0.
        positive |= ((iou == best) & (best > 0)).any(dim=1)
    return OverlapLabels(positive=positive, negative=negative & ~positive, owner=owner)


def wanted_offsets(code: BoxCoder, boxes: Tensor, wanted: Tensor, positive: Tensor) -> Tensor:
    """Return the offsets (B, N, 4) from boxes to those they learn, both (B, N, 4) xyxy; 0 if not positive.
    Boxes of padding have no size, which must not become infinite offsets.
    """
    unit = boxes.new_tensor((0.0, 0.0, 1.0, 1.0))
    start, end = (torch.where(positive[..., None], corners, unit) for corners in (boxes, wanted))
    return code.encode(end, to_center_size(start))
