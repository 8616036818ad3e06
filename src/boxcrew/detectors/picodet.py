"""PicoDet (Yu et al. 2021): a small detector for CPUs, with anchor points on four maps.

The network is the one that PaddleDetection publishes as PicoDet-S since version 2.5, so that its weights for
COCO load: PP-LCNet (Cui et al. 2021), a neck of separable 5 x 5 convolutions, and a head whose scores are
class times alignment. The side distances of boxes are distributions (Li et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

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
    input_hw,
)
from boxcrew.detectors._paddle_picodet import is_paddle, picodet_from_paddle
from boxcrew.detectors._points import best_candidates, best_point_iou, point_targets
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.class_path import ClassPath
from boxcrew.nets.layers import Normalize, SingleCellNorm
from boxcrew.nets.network import ClassBackbone, ClassRows
from boxcrew.nets.path_aggregation import PathAggregation, conv_swish, separable_swish
from boxcrew.nets.points import Points, boxes_at, cell_centers, distances_to, paired_giou
from boxcrew.nets.quality_losses import distribution_focal, expected_distance, varifocal
from boxcrew.nets.weights import State

NUM_BINS = 8  # distances 0, 1, …, 7 strides
FINEST_STRIDE, NUM_MAPS = 8, 3  # of the backbone; the neck adds a map
_PRIOR = 0.01  # score that every class begins with (RetinaNet, section 4.1)
_SLOPE = -0.5  # of the bins at the start, so that boxes begin about 3 strides wide


class PicoDetConfig(DetectorConfig):
    learned_from: ClassVar[str] = "points"

    name: Literal["picodet"] = "picodet"
    size: InputSize = InputSize((320,))
    """Input in pixels: a square such as 320, short:long such as 320:512, or several, one for each step."""
    nms_iou: float = Field(default=0.6, ge=0, le=1)
    """Of two detections of a class that overlap more than this, the weaker is dropped."""
    backbone: str = "lcnet_075"
    """Name of a timm network; weights for COCO are for lcnet_075."""
    neck: int = Field(default=96, ge=16, le=512, multiple_of=16)
    """Channels of the paths between the maps, and of the heads; weights for COCO are for 96."""
    class_backbone: str | None = None
    """A second timm network that helps to tell classes apart, such as pplcnetv2_base; none by default."""
    num_points: int = Field(default=13, ge=1)
    """Points that learn an object, at most."""
    class_gain: float = Field(default=1.0, ge=0)
    """Weight of the varifocal loss of classes."""
    iou_gain: float = Field(default=2.5, ge=0)
    """Weight of the GIoU loss of boxes."""
    distribution_gain: float = Field(default=0.5, ge=0)
    """Weight of the loss of the distributions of distances."""


class _Outputs(NamedTuple):
    """The outputs of the heads for P points of B images."""

    log_scores: Tensor  # (B, P, C) logarithms of scores in 0..1
    bins: Tensor  # (B, P, 4, NUM_BINS) scores of the distances to the sides, before softmax
    points: Points

    def boxes(self) -> Tensor:
        """Return boxes (B, P, 4), xyxy in pixels, not clipped."""
        return boxes_at(self.points, expected_distance(self.bins))


@DETECTORS.register("picodet")
class PicoDet(DetectorNet):
    """A backbone, paths between its maps in both directions, and a head on each map."""

    config_class = PicoDetConfig
    config: PicoDetConfig

    def __init__(self, config: PicoDetConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.backbone = Backbone(config.backbone, finest_stride=FINEST_STRIDE)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        strides = self.backbone.strides[:NUM_MAPS]
        self.strides = [*strides, 2 * strides[-1]]
        self.neck = PathAggregation(self.backbone.channels[:NUM_MAPS], width=config.neck)
        self.heads = nn.ModuleList(_Head(config.neck, len(classes)) for _ in self.strides)
        self.class_path = ClassPath(config.class_backbone, len(classes)) if config.class_backbone else None

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return scores 0..1 (B, P, C) and boxes (B, P, 4), xyxy in pixels, not clipped."""
        outputs = self._outputs(images)
        return outputs.log_scores.exp(), outputs.boxes()

    def losses(self, batch: Batch) -> Losses:
        """Return the varifocal loss of all scores, and GIoU and the loss of distributions of assigned boxes,
        as sums. The weight is the sum of the scores to be learned, so that any split of a step learns the
        same.
        """
        outputs = self._outputs(batch.inputs)
        boxes = outputs.boxes()
        wanted = point_targets(
            outputs.points,
            outputs.log_scores.exp(),
            boxes,
            targets=batch.targets,
            num_points=self.config.num_points,
        )
        class_loss = varifocal(outputs.log_scores, wanted.scores).sum()
        iou_loss = ((1 - paired_giou(boxes, wanted.boxes)) * wanted.quality).sum()
        distribution = distribution_focal(outputs.bins, distances_to(outputs.points, wanted.boxes))
        return Losses(
            terms={
                "class": self.config.class_gain * class_loss,
                "iou": self.config.iou_gain * iou_loss,
                "distribution": self.config.distribution_gain
                * (distribution.mean(dim=-1) * wanted.quality).sum(),
            },
            weight=wanted.quality.sum(),
        )

    def candidates(self, raw: tuple[Tensor, ...], size: HeightWidth) -> Candidates:
        return best_candidates(self.scored_boxes(raw, size), size, count=self.num_candidates)

    def scored_boxes(self, raw: tuple[Tensor, ...], size: HeightWidth) -> ScoredBoxes:
        del size
        return ScoredBoxes(raw[1].float(), raw[0].float())

    def best_anchor_iou(self, boxes: Tensor) -> Tensor:
        """Return the IoU (N,) of each box with the best box that a point can give."""
        return best_point_iou(boxes, self.strides, self.config.size, max_strides=NUM_BINS - 1)

    def class_tensors(self) -> Mapping[str, ClassRows]:
        names = [f"heads.{i}.classes.{name}" for i in range(len(self.strides)) for name in ("weight", "bias")]
        if self.class_path is not None:
            names += [f"class_path.{name}" for name in self.class_path.class_tensors()]
        return dict.fromkeys(names, ClassRows())

    def convert_foreign(self, state: State) -> State:
        return picodet_from_paddle(state) if is_paddle(state) else state

    def backbone_prefix(self) -> str:
        return "backbone.body."

    def class_backbone(self) -> ClassBackbone | None:
        if self.class_path is None:
            return None
        return ClassBackbone(prefix="class_path.backbone.body.", normalize=self.class_path.normalize)

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.backbone.expected_normalization()

    def _outputs(self, images: Tensor) -> _Outputs:
        maps = self.neck(self.backbone(self.normalize(images))[:NUM_MAPS])
        each = [head(features) for head, features in zip(self.heads, maps, strict=True)]
        classes, alignment, bins = (torch.cat(parts, dim=1) for parts in zip(*each, strict=True))
        if self.class_path is not None:
            classes = classes + self.class_path(images, [input_hw(features) for features in maps])
        exact = torch.promote_types(classes.dtype, torch.float32)  # half precision is too coarse for sums
        points = cell_centers(maps, self.strides)
        return _Outputs(
            log_scores=(F.logsigmoid(classes.to(exact)) + F.logsigmoid(alignment.to(exact))) / 2,
            bins=bins.to(exact).reshape(*bins.shape[:2], 4, NUM_BINS),
            points=Points(*(values.to(exact) for values in points)),
        )


class _Head(nn.Module):
    """The layers that score the classes and place the boxes of one map."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(separable_swish(width, width), separable_swish(width, width))
        self.attention = nn.Conv2d(width, width, 1)  # of the channels, by their means over the map
        self.mix = conv_swish(width, width, 1)
        self.classes = nn.Conv2d(width, num_classes, 1)
        self.distances = nn.Conv2d(width, 4 * NUM_BINS, 1)
        self.alignment = nn.Sequential(
            conv_swish(width, 1, 5), nn.Conv2d(1, 1, 1, bias=False), SingleCellNorm(1)
        )
        for layer in (self.attention, self.classes, self.distances):
            assert layer.bias is not None
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)
        assert self.classes.bias is not None
        assert self.distances.bias is not None
        nn.init.constant_(self.classes.bias, -math.log(1 / _PRIOR - 1))
        with torch.no_grad():
            self.distances.bias += _SLOPE * torch.arange(NUM_BINS).repeat(4)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores before the sigmoid of the classes (B, HW, C) and of the alignment of class and box
        (B, HW, 1), and the bins (B, HW, 4 x NUM_BINS).
        """
        deep = self.layers(features)
        mixed = self.mix(deep * self.attention(deep.mean(dim=(2, 3), keepdim=True)).sigmoid())
        outputs = self.classes(mixed), self.alignment(deep), self.distances(mixed)
        classes, alignment, bins = (output.flatten(2).transpose(1, 2) for output in outputs)
        return classes, alignment, bins
