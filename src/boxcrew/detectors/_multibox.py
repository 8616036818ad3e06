"""The heads, loss and decoding that single-shot detectors with default boxes share (SSD, section 2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.types import Batch, Losses
from boxcrew.detectors._base import Candidates, DetectorConfig, DetectorNet, HeightWidth, ScoredBoxes
from boxcrew.nets.anchors import BoxCoder, Level, default_boxes, to_xyxy
from boxcrew.nets.matching import hard_negatives, match
from boxcrew.nets.network import ClassRows
from boxcrew.nets.static import score_ranks, top_ranked

_PAIRS = 250_000  # IoUs computed at once: few enough to stay in a processor's cache


class MultiBoxConfig(DetectorConfig):
    match_setting = "match_iou"
    takes_any_shape = False

    match_iou: float = Field(default=0.5, gt=0, le=1)
    """Default boxes that overlap an object by this much learn it."""
    negatives: int = Field(default=3, ge=1)
    """Negatives to learn from for each positive, the hardest ones."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Label smoothing of the classes."""


class MultiBoxNet(DetectorNet):
    """A detector that scores and shifts default boxes.

    A subclass builds `class_heads` and `box_heads`, one for each feature map, calls `set_levels`, and returns
    the maps from `features`.
    """

    anchors: Tensor  # (A, 4) center-size, pixels of the largest input
    class_heads: nn.ModuleList  # map -> blocks of (1 + C) scores, one block for each box of a cell
    box_heads: nn.ModuleList  # map -> 4 offsets for each box of a cell
    config: MultiBoxConfig
    candidates_each = "class"

    def __init__(self, config: MultiBoxConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.code = BoxCoder()
        # Not saved: default boxes follow from the settings.
        self.register_buffer("anchors", torch.empty(0, 4), persistent=False)

    def set_levels(self, levels: Mapping[int, Sequence[Level]]) -> None:
        """Set the default boxes, from the levels for a square input of each side, the largest last."""
        # Default boxes are computed even in a network without weights (on the meta device).
        with torch.device("cpu"):
            *smaller, self.anchors = (default_boxes(levels[side], size=side) for side in levels)
        for side, boxes in zip(levels, smaller, strict=False):
            self.register_buffer(f"anchors_{side}", boxes, persistent=False)
        self.boxes_per_cell = [len(level.shapes) for level in levels[self.config.size.sides[-1]]]

    def anchors_at(self, side: int) -> Tensor:
        """Return the default boxes (A, 4) of a square input of that side."""
        return self.anchors if side == self.config.size.sides[-1] else self.get_buffer(f"anchors_{side}")

    @abstractmethod
    def features(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps for the heads, finest first; `images` are normalized."""

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return scores before softmax (B, A, 1 + C), background first, and offsets (B, A, 4)."""
        maps = self.features(self.normalize(images))
        scores = [
            _rows(head(m), 1 + len(self.classes)) for head, m in zip(self.class_heads, maps, strict=True)
        ]
        offsets = [_rows(head(m), 4) for head, m in zip(self.box_heads, maps, strict=True)]
        return torch.cat(scores, dim=1), torch.cat(offsets, dim=1)

    def losses(self, batch: Batch) -> Losses:
        scores, offsets = self(batch.inputs)
        exact = torch.promote_types(scores.dtype, torch.float32)  # half precision is too coarse for sums
        targets = {**batch.targets, "boxes": batch.targets["boxes"].to(exact)}
        anchors = self.anchors_at(batch.inputs.shape[-1])
        return self.multibox_losses(anchors, scores.to(exact), offsets.to(exact), targets)

    def multibox_losses(
        self, anchors: Tensor, scores: Tensor, offsets: Tensor, targets: Mapping[str, Tensor]
    ) -> Losses:
        """Return the loss of SSD, equations 1 to 3, as sums; the weight is the number of matched boxes.
        No branch depends on tensor values, so an accelerator never waits for the host.
        """
        labels, boxes = targets["labels"], targets["boxes"]
        anchors_xyxy = to_xyxy(anchors)
        matched = match(boxes, labels >= 0, anchors_xyxy, threshold=self.config.match_iou)
        positive = matched >= 0
        owner = matched.clamp(min=0)
        wanted_class = torch.where(positive, labels.gather(1, owner) + 1, 0)
        owner_boxes = boxes.gather(1, owner[..., None].expand(-1, -1, 4))
        wanted_boxes = torch.where(positive[..., None], owner_boxes, anchors_xyxy)

        distance = F.smooth_l1_loss(offsets, self.code.encode(wanted_boxes, anchors), reduction="none")
        class_loss = F.cross_entropy(
            scores.flatten(0, 1),
            wanted_class.flatten(),
            reduction="none",
            label_smoothing=self.config.label_smoothing,
        ).reshape_as(wanted_class)
        counted = positive | hard_negatives(class_loss, positive, ratio=self.config.negatives)
        return Losses(
            terms={
                "class": (class_loss * counted).sum(),
                "box": (distance.sum(dim=-1) * positive).sum(),
            },
            weight=positive.sum().to(class_loss.dtype),
        )

    def candidates(self, raw: tuple[Tensor, ...], size: HeightWidth) -> Candidates:
        from torchvision.ops import clip_boxes_to_image

        boxes, probabilities = self.scored_boxes(raw, size)
        boxes = clip_boxes_to_image(boxes, size)
        anchor = top_ranked(score_ranks(probabilities), count=self.num_candidates)
        best = probabilities.gather(1, anchor)
        labels = torch.arange(best.shape[2], device=best.device).expand_as(best).flatten(1)
        best, anchor = best.flatten(1), anchor.flatten(1)
        candidates = boxes.gather(1, anchor[..., None].expand(-1, -1, 4))
        return Candidates(candidates, best, labels)

    def scored_boxes(self, raw: tuple[Tensor, ...], size: HeightWidth) -> ScoredBoxes:
        scores, offsets = raw
        boxes = self.code.decode(offsets.float(), self.anchors_at(size[1]))
        return ScoredBoxes(boxes, scores.float().softmax(dim=-1)[..., 1:])

    def best_anchor_iou(self, boxes: Tensor) -> Tensor:
        """Return the IoU (N,) of each box with its best default box.
        In training each object also gets its best free one, however small that is (`nets/matching.py`).
        """
        from torchvision.ops import box_iou

        anchors = to_xyxy(self.anchors)
        at_once = max(1, _PAIRS // len(anchors))
        chunks = [boxes[i : i + at_once] for i in range(0, len(boxes), at_once)]
        return torch.cat([boxes.new_zeros(0), *(box_iou(chunk, anchors).amax(dim=1) for chunk in chunks)])

    def class_tensors(self) -> Mapping[str, ClassRows]:
        rows: dict[str, ClassRows] = {}
        for i, (head, blocks) in enumerate(zip(self.class_heads, self.boxes_per_cell, strict=True)):
            name, _ = list(head.named_modules())[-1]
            prefix = f"class_heads.{i}.{name}." if name else f"class_heads.{i}."
            rows |= dict.fromkeys((f"{prefix}weight", f"{prefix}bias"), ClassRows(blocks=blocks, shared=1))
        return rows


def _rows(output: Tensor, width: int) -> Tensor:
    """Reorder a head's output (B, K * width, H, W) to (B, H * W * K, width), in default box order."""
    batch, _, height, columns = output.shape
    return output.permute(0, 2, 3, 1).reshape(batch, height * columns * (output.shape[1] // width), width)
