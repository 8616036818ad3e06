"""A small two-stage detector: what future ones need of `Batch.draws`, `Batch.extra` and `Losses`.

An RPN-like head scores anchors and shifts them into proposals; a region head classifies proposals, true boxes
and extra regions. Both learn from a few candidates, chosen by each sample's own draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Batch, Losses
from boxcrew.detectors._base import DETECTORS, Candidates, DetectorConfig, DetectorNet, input_hw
from boxcrew.nets.anchors import BoxCoder, to_xyxy
from boxcrew.nets.layers import Normalize
from boxcrew.nets.network import ClassRows
from boxcrew.nets.static import Chosen, hashed_keys, indices_of, logit_ranks, nms_top_k, sample_balanced

NAME = "two_headed"
STRIDE = 8
SHAPES = ((12.8, 12.8), (25.6, 25.6), (19.2, 38.4))  # width and height of a cell's anchors, pixels
NUM_PROPOSALS, NUM_ANCHORS, NUM_REGIONS = 12, 16, 8
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


class TwoHeadedConfig(DetectorConfig):
    name: Literal["two_headed"] = "two_headed"
    size: InputSize = InputSize((64,))


class TwoHeaded(DetectorNet):
    """`chosen`, where it is a dictionary, gets for each draw the numbers of the anchors learned from."""

    config_class = TwoHeadedConfig
    chosen: ClassVar[dict[int, list[int]] | None] = None

    def __init__(self, config: TwoHeadedConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.normalize = Normalize(MEAN, STD)
        widths = (3, 8, 16, 16)
        self.backbone = nn.Sequential()
        for inputs, outputs in pairwise(widths):
            self.backbone.extend([nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()])
        self.rpn = nn.Conv2d(16, 5 * len(SHAPES), 3, padding=1)
        self.hidden = nn.Linear(16 * 9, 32)
        self.scores = nn.Linear(32, 1 + len(classes))
        self.offsets = nn.Linear(32, 4)
        self.code = BoxCoder()

    def forward(self, images: Tensor, *extra: Tensor) -> tuple[Tensor, ...]:
        """Scores (B, K, 1 + C), offsets, boxes and whether they are valid of K proposals and regions."""
        maps, objectness, shifts = self._rpn(images)
        boxes, chosen = self._proposals(objectness, shifts, input_hw(images))
        valid = chosen.valid
        if extra:
            boxes = torch.cat((boxes, extra[0].to(boxes.dtype)), dim=1)
            valid = torch.cat((valid, extra[1]), dim=1)
        return (*self._head(maps, boxes), boxes, valid.to(boxes.dtype))

    def losses(self, batch: Batch) -> Losses:
        maps, objectness, shifts = self._rpn(batch.inputs)
        boxes = batch.targets["boxes"].to(shifts.dtype)
        labels = batch.targets["labels"]
        anchors = anchors_on(input_hw(batch.inputs), shifts)
        terms = self._anchor_terms(objectness, shifts, batch, anchors)
        regions, valid, keys = self._candidates(batch, objectness, shifts, boxes)
        overlap, owner = best_object(regions, boxes, labels)
        positive, negative = valid & (overlap >= 0.5), valid & (overlap < 0.5)
        mask = sample_balanced(positive, negative, keys, count=NUM_REGIONS, max_positive=NUM_REGIONS // 2)
        picked = indices_of(mask, count=NUM_REGIONS)
        regions, owner, positive = picked.gather(regions), picked.gather(owner), picked.gather(positive)
        scores, offsets = self._head(maps, regions)
        wanted = torch.where(positive, labels.gather(1, owner) + 1, 0)
        class_loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction="none")
        counts = picked.valid.sum(dim=1).clamp(min=1)
        shift_loss = _shift_loss(self.code, offsets, _of_owner(boxes, owner), _to_centers(regions), positive)
        # Each image's sums are divided by its own counts, so that one weight serves both heads.
        terms["class"] = ((class_loss.reshape_as(wanted) * picked.valid).sum(dim=1) / counts).sum()
        terms["box"] = (shift_loss / counts).sum()
        return Losses(terms=terms, weight=objectness.new_tensor(float(len(batch))))

    def _anchor_terms(
        self, objectness: Tensor, shifts: Tensor, batch: Batch, anchors: Tensor
    ) -> dict[str, Tensor]:
        boxes, labels, draws = batch.targets["boxes"].to(shifts.dtype), batch.targets["labels"], batch.draws
        overlap, owner = best_object(to_xyxy(anchors).expand(len(boxes), -1, 4), boxes, labels)
        positive, negative = overlap >= 0.5, overlap < 0.3
        keys = hashed_keys(draws, len(anchors))
        mask = sample_balanced(positive, negative, keys, count=NUM_ANCHORS, max_positive=NUM_ANCHORS // 2)
        if self.chosen is not None and not mask.is_meta:
            numbers = [row.nonzero().flatten().tolist() for row in mask]
            self.chosen.update(zip(draws.tolist(), numbers, strict=True))
        counts = mask.sum(dim=1).clamp(min=1)
        wanted = positive.to(objectness.dtype)
        object_loss = F.binary_cross_entropy_with_logits(objectness, wanted, reduction="none")
        shift_loss = _shift_loss(self.code, shifts, _of_owner(boxes, owner), anchors, mask & positive)
        return {
            "objectness": ((object_loss * mask).sum(dim=1) / counts).sum(),
            "shift": (shift_loss / counts).sum(),
        }

    def _candidates(
        self, batch: Batch, objectness: Tensor, shifts: Tensor, boxes: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Proposals, true boxes and extra regions (B, N, 4), which of them are valid, and their keys."""
        proposals, chosen = self._proposals(objectness, shifts, input_hw(batch.inputs))
        candidates = [
            (
                proposals,
                chosen.valid,
                hashed_keys(batch.draws + 1, shifts.shape[1]).gather(1, chosen.index),
            ),
            (boxes, batch.targets["labels"] >= 0, hashed_keys(batch.draws + 2, boxes.shape[1])),
        ]
        if batch.extra:
            regions, valid = batch.extra["regions"], batch.extra["regions_valid"]
            candidates.append(
                (regions.to(boxes.dtype), valid, hashed_keys(batch.draws + 3, regions.shape[1]))
            )
        joined, valid, keys = (torch.cat(parts, dim=1) for parts in zip(*candidates, strict=True))
        return joined, valid, keys

    def _rpn(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The map, and of each anchor its objectness (B, A) and shift (B, A, 4)."""
        maps = self.backbone(self.normalize(images))
        rows = self.rpn(maps).permute(0, 2, 3, 1).reshape(images.shape[0], -1, 5)
        return maps, rows[..., 0], rows[..., 1:]

    def _proposals(self, objectness: Tensor, shifts: Tensor, size: tuple[int, int]) -> tuple[Tensor, Chosen]:
        from torchvision.ops import clip_boxes_to_image

        boxes = clip_boxes_to_image(self.code.decode(shifts.detach(), anchors_on(size, shifts)), size)
        valid = (boxes[..., 2:] - boxes[..., :2] >= 1).all(dim=-1)
        groups = torch.zeros_like(valid, dtype=torch.int64)
        ranks = logit_ranks(objectness)
        chosen = nms_top_k(boxes, ranks, groups, valid, num_groups=1, iou=0.7, count=NUM_PROPOSALS)
        return chosen.gather(boxes), chosen

    def _head(self, maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (B, K, 1 + C) and offsets (B, K, 4) of boxes (B, K, 4)."""
        hidden = self._hidden(maps, boxes)
        return self.scores(hidden), self.offsets(hidden)

    def _hidden(self, maps: Tensor, boxes: Tensor) -> Tensor:
        """The features (B, K, 32) of boxes (B, K, 4)."""
        from torchvision.ops import roi_align

        images = torch.arange(boxes.shape[0], device=boxes.device).to(boxes.dtype)
        rows = torch.cat((images[:, None, None].expand(*boxes.shape[:2], 1), boxes), dim=-1).flatten(0, 1)
        pooled = roi_align(maps, rows.to(maps.dtype), 3, 1 / STRIDE, 2, aligned=True)
        hidden: Tensor = self.hidden(pooled.flatten(1)).relu().unflatten(0, boxes.shape[:2])
        return hidden

    def candidates(self, raw: tuple[Tensor, ...], size: tuple[int, int]) -> Candidates:
        from torchvision.ops import clip_boxes_to_image

        scores, offsets, boxes, valid = raw
        best, labels = scores.softmax(dim=-1)[..., 1:].max(dim=-1)
        moved = clip_boxes_to_image(self.code.decode(offsets, _to_centers(boxes)), size)
        return Candidates(moved, best * (valid > 0), labels)

    def class_tensors(self) -> Mapping[str, ClassRows]:
        return dict.fromkeys(("scores.weight", "scores.bias"), ClassRows(shared=1))

    def backbone_prefix(self) -> str:
        return "backbone."

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return MEAN, STD


def anchors_on(size: tuple[int, int], like: Tensor) -> Tensor:
    """The anchors (A, 4), center and size, of images of this (height, width); on the device of `like`."""
    rows, columns = (torch.arange(-(-side // STRIDE), device=like.device) for side in size)
    grid = torch.meshgrid(columns, rows, indexing="xy")
    centers = (torch.stack(grid, dim=-1).reshape(-1, 1, 2).to(like.dtype) + 0.5) * STRIDE
    shapes = like.new_tensor(SHAPES).expand(len(centers), -1, 2)
    return torch.cat((centers.expand_as(shapes), shapes), dim=-1).reshape(-1, 4)


def best_object(boxes: Tensor, objects: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(B, N) the greatest IoU of each box (B, N, 4) with an object (B, M, 4), and the number of that."""
    low = boxes[:, :, None, :2].maximum(objects[:, None, :, :2])
    high = boxes[:, :, None, 2:].minimum(objects[:, None, :, 2:])
    shared = (high - low).clamp(min=0).prod(dim=-1)
    areas = [(corners[..., 2:] - corners[..., :2]).prod(dim=-1) for corners in (boxes, objects)]
    iou = shared / (areas[0][:, :, None] + areas[1][:, None] - shared).clamp(min=1e-6)
    overlap, owner = iou.masked_fill((labels < 0)[:, None], -1).max(dim=-1)
    return overlap, owner


def _of_owner(objects: Tensor, owner: Tensor) -> Tensor:
    return objects.gather(1, owner[..., None].expand(-1, -1, 4))


def _to_centers(boxes: Tensor) -> Tensor:
    """Boxes of no extent get one pixel, so that no logarithm is infinite."""
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=1)
    return torch.cat(((boxes[..., :2] + boxes[..., 2:]) / 2, sides), dim=-1)


def _shift_loss(code: BoxCoder, offsets: Tensor, boxes: Tensor, anchors: Tensor, positive: Tensor) -> Tensor:
    """(B,) the sum over the positive of N boxes."""
    wanted = code.encode(torch.where(positive[..., None], boxes, to_xyxy(anchors)), anchors)
    distance = F.smooth_l1_loss(offsets, wanted, reduction="none").sum(dim=-1)
    return (distance * positive).sum(dim=1)


@contextmanager
def registered() -> Iterator[str]:
    """The name under which runs find the detector until the end; other tests do not know it."""
    DETECTORS.names()  # all others first
    DETECTORS.register(NAME)(TwoHeaded)
    try:
        yield NAME
    finally:
        del DETECTORS._members[NAME]


@contextmanager
def recorded() -> Iterator[dict[int, list[int]]]:
    """By the draw of every sample that is learned from: the numbers of the anchors chosen for it."""
    chosen: dict[int, list[int]] = {}
    TwoHeaded.chosen = chosen
    try:
        yield chosen
    finally:
        TwoHeaded.chosen = None
