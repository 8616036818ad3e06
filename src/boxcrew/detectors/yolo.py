"""A present-day YOLO: anchor points on three maps, separate branches for classes and boxes.

It is what small detectors have become since YOLO v8 and PP-YOLOE: no default boxes, no objectness, a
task-aligned assigner, a class score that learns the quality of the box, and an IoU loss, on any timm
backbone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Batch, Losses
from boxcrew.detectors._base import (
    DETECTORS,
    Candidates,
    DetectorConfig,
    DetectorNet,
    HeightWidth,
    ScoredBoxes,
)
from boxcrew.detectors._points import best_candidates, best_point_iou, point_targets
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.layers import Normalize, TopDown, conv_norm
from boxcrew.nets.network import ClassRows
from boxcrew.nets.points import Points, boxes_at, cell_centers, distances_to, paired_giou

_PRIOR = 0.01  # score that every class begins with (RetinaNet, section 4.1)
_START = 2.0  # distances that points begin with, in strides


class YoloConfig(DetectorConfig):
    learned_from: ClassVar[str] = "points"

    name: Literal["yolo"] = "yolo"
    size: InputSize = InputSize((320,))
    """Input in pixels: a square such as 320, short:long such as 320:512, or several, one for each step."""
    nms_iou: float = Field(default=0.6, ge=0, le=1)
    """Of two detections of a class that overlap more than this, the weaker is dropped."""
    backbone: str = "tf_efficientnet_lite0"
    """Name of a timm network with two or more feature maps."""
    finest_stride: int = Field(default=8, ge=4, le=32)
    """Stride of the finest map with a head."""
    levels: int = Field(default=3, ge=2, le=5)
    """Maps with a head, at most."""
    neck: int = Field(default=160, ge=16, le=512, multiple_of=16)
    """Channels of the top-down path between the maps, and of the branches."""
    depth: int = Field(default=1, ge=1, le=4)
    """Separable 3 x 3 layers of each branch."""
    num_points: int = Field(default=10, ge=1)
    """Points that learn an object, at most."""
    class_gain: float = Field(default=1.0, ge=0)
    """Weight of the loss of classes."""
    iou_gain: float = Field(default=2.5, ge=0)
    """Weight of the GIoU loss of boxes."""
    distance_gain: float = Field(default=0.5, ge=0)
    """Weight of the L1 loss of the distances to the sides of boxes, in strides."""


@DETECTORS.register("yolo")
class Yolo(DetectorNet):
    """A backbone, a top-down path, and on each map a branch for classes and one for boxes."""

    config_class = YoloConfig
    config: YoloConfig

    def __init__(self, config: YoloConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.backbone = Backbone(config.backbone, finest_stride=config.finest_stride)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        self.strides = self.backbone.strides[: config.levels]
        self.neck = TopDown(self.backbone.channels[: config.levels], width=config.neck)
        unlikely, near = -math.log(1 / _PRIOR - 1), math.log(math.expm1(_START))
        self.class_heads = nn.ModuleList(self._branch(len(classes), bias=unlikely) for _ in self.strides)
        self.box_heads = nn.ModuleList(self._branch(4, bias=near) for _ in self.strides)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return scores before the sigmoid (B, P, C) and boxes (B, P, 4), xyxy in pixels, not clipped."""
        scores, distances, points = self._outputs(images)
        return scores, boxes_at(points, distances)

    def losses(self, batch: Batch) -> Losses:
        """Return binary cross-entropy of all scores, and GIoU and L1 of assigned boxes, as sums. The weight
        is the sum of the scores to be learned, so that any split of a step learns the same.
        """
        scores, distances, points = self._outputs(batch.inputs)
        exact = torch.promote_types(scores.dtype, torch.float32)  # half precision is too coarse for sums
        scores, distances = scores.to(exact), distances.to(exact)
        points = Points(*(values.to(exact) for values in points))
        boxes = boxes_at(points, distances)
        wanted = point_targets(
            points, scores.sigmoid(), boxes, targets=batch.targets, num_points=self.config.num_points
        )
        class_loss = F.binary_cross_entropy_with_logits(scores, wanted.scores, reduction="sum")
        iou_loss = ((1 - paired_giou(boxes, wanted.boxes)) * wanted.quality).sum()
        distance = F.l1_loss(distances, distances_to(points, wanted.boxes), reduction="none").mean(dim=-1)
        return Losses(
            terms={
                "class": self.config.class_gain * class_loss,
                "iou": self.config.iou_gain * iou_loss,
                "distance": self.config.distance_gain * (distance * wanted.quality).sum(),
            },
            weight=wanted.quality.sum(),
        )

    def candidates(self, raw: tuple[Tensor, ...], size: HeightWidth) -> Candidates:
        return best_candidates(self.scored_boxes(raw, size), size, count=self.num_candidates)

    def scored_boxes(self, raw: tuple[Tensor, ...], size: HeightWidth) -> ScoredBoxes:
        del size
        return ScoredBoxes(raw[1].float(), raw[0].float().sigmoid())

    def best_anchor_iou(self, boxes: Tensor) -> Tensor:
        """Return the IoU (N,) of each box with the best box that a point can give."""
        return best_point_iou(boxes, self.strides, self.config.size)

    def class_tensors(self) -> Mapping[str, ClassRows]:
        last = self.config.depth
        names = [
            f"class_heads.{i}.{last}.{name}" for i in range(len(self.strides)) for name in ("weight", "bias")
        ]
        return dict.fromkeys(names, ClassRows())

    def backbone_prefix(self) -> str:
        return "backbone.body."

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.backbone.expected_normalization()

    def _branch(self, outputs: int, *, bias: float) -> nn.Sequential:
        """Return the layers of a branch, whose outputs begin near `bias`."""
        width = self.config.neck
        layers = [
            nn.Sequential(conv_norm(width, width, 3, groups=width), conv_norm(width, width, 1))
            for _ in range(self.config.depth)
        ]
        last = nn.Conv2d(width, outputs, 1)
        assert last.bias is not None
        nn.init.normal_(last.weight, std=0.01)
        nn.init.constant_(last.bias, bias)
        return nn.Sequential(*layers, last)

    def _outputs(self, images: Tensor) -> tuple[Tensor, Tensor, Points]:
        """Return scores (B, P, C), distances in strides (B, P, 4), all above 0, and the points."""
        maps = self.neck(self.backbone(self.normalize(images))[: len(self.strides)])
        scores = [head(features).flatten(2) for head, features in zip(self.class_heads, maps, strict=True)]
        distances = [head(features).flatten(2) for head, features in zip(self.box_heads, maps, strict=True)]
        return (
            torch.cat(scores, dim=2).transpose(1, 2),
            F.softplus(torch.cat(distances, dim=2).transpose(1, 2)),
            cell_centers(maps, self.strides),
        )
