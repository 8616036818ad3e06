"""The settings of Faster R-CNN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from boxcrew.core.config import commas
from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.detectors._anchor_adapt import AnchorLayout, adapt_layout, anchor_layouts
from boxcrew.detectors._base import DetectorConfig, MissReason
from boxcrew.nets.anchor_grid import AnchorGrid, cell_shapes
from boxcrew.nets.anchors import Level
from boxcrew.nets.regions import Pooling

AUTO_STRIDES = (8, 16)  # candidates for the finest map
PAPER_SIZES = (128.0, 256.0, 512.0)  # pixels, all on one map
_MATCH_IOU = 0.5  # from which an anchor need not be moved far
_USUAL_RATIO = 4 / 3  # of the sides of photos

Auto = Literal["auto"]
Positive = Annotated[float, Field(gt=0)]
Numbers = Annotated[tuple[Positive, ...], commas, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class FasterRcnnConfig(DetectorConfig):
    name: Literal["faster_rcnn"] = "faster_rcnn"
    size: InputSize = InputSize((320,))
    """Input in pixels: a square such as 320, short:long such as 600:1000, or several, one for each step."""
    score_threshold: Share = 0.05
    """Detections with a lower score are dropped."""
    nms_iou: Share = 0.5
    """Of two detections of a class that overlap more than this, the weaker is dropped."""
    max_detections: Count = 100
    """Detections of an image, at most."""
    backbone: str = "tf_efficientnet_lite0"
    """Name of a timm network with two or more feature maps."""
    maps: Literal["strides", "late"] = "strides"
    """Maps of the backbone: one for each stride, or two at the coarsest as torchvision's MobileNet has."""
    finest_stride: Annotated[int, Field(ge=4, le=32)] | Auto = 8
    """Stride of the finest map; auto adapts it to the boxes of the data."""
    levels: int = Field(default=3, ge=1, le=6)
    """Maps with anchors; where the backbone has fewer, its last is halved."""
    pyramid: Literal["separable", "fpn", "fpn_norm", "none"] = "separable"
    """Top-down path: of separable layers, as in the FPN paper, that with BatchNorm, or none (one map)."""
    neck: int = Field(default=128, ge=16, le=1024, multiple_of=16)
    """Channels of the top-down path, or without one those of the map."""
    anchor_sizes: Numbers | Auto = "auto"
    """Anchors in pixels, one for each map or else all on every map; auto adapts them to the data."""
    anchor_ratios: Numbers = (0.5, 1.0, 2.0)
    """Height of anchors divided by their width."""
    anchor_grid: Literal["centers", "corners"] = "centers"
    """Anchors are centered in cells, or on their corners and rounded as torchvision does."""
    rpn_depth: int = Field(default=1, ge=1, le=4)
    """Hidden layers of the region proposal network."""
    rpn_positive_iou: Share = 0.7
    """Anchors that overlap an object by this much learn it, and the best of each object too."""
    rpn_negative_iou: Share = 0.3
    """Anchors that overlap every object by less than this learn that they are background."""
    rpn_samples: Count = 256
    """Anchors of an image to learn from, at most half of them positive."""
    candidates: Count = 500
    """Best anchors of each map that become proposals, before suppression; in training twice as many."""
    proposals: Count = 150
    """Proposals of an image after suppression, at most; in training twice as many."""
    proposal_iou: Share = 0.7
    """Of two proposals of a map that overlap more than this, the weaker is dropped."""
    proposal_score: Share = 0.0
    """Proposals with a lower score are dropped."""
    regions: Count = 128
    """Regions of an image that the head learns from."""
    region_positives: Share = 0.25
    """Fraction of these regions with an object, at most."""
    region_iou: Share = 0.5
    """Regions that overlap an object by this much learn it; the others learn that they are background."""
    pooling: Pooling = "align"
    """Pooling of regions: align is RoIAlign, max is RoI pooling as in the paper."""
    head: Literal["fc", "conv"] = "fc"
    """Hidden layers of the head: two fully connected, or four convolutions and one fully connected."""
    head_width: int = Field(default=512, ge=16, le=4096)
    """Outputs of each fully connected layer of the head."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.rpn_negative_iou > self.rpn_positive_iou:
            raise UsageError(
                f"detector.rpn_negative_iou={self.rpn_negative_iou}: must not be above "
                f"detector.rpn_positive_iou={self.rpn_positive_iou}"
            )
        longest = self.size.limit or self.size.sides[-1]
        if self.anchor_sizes != "auto" and min(self.anchor_sizes) > longest:
            raise UsageError(
                f"detector.anchor_sizes: all anchors are larger than the input of {longest} px",
                advice="give sizes of objects in pixels of the input, or detector.anchor_sizes=auto",
            )
        return self

    @property
    def num_maps(self) -> int:
        """The number of maps with anchors."""
        return 1 if self.pyramid == "none" else self.levels

    @property
    def stride(self) -> int:
        """The stride of the finest map; 8 while it is still `auto`."""
        return AUTO_STRIDES[0] if self.finest_stride == "auto" else self.finest_stride

    def grids(self, strides: list[int]) -> list[AnchorGrid]:
        """Return the anchors of maps of these strides; sizes that are still `auto` are four strides."""
        rounded = self.anchor_grid == "corners"
        return [
            AnchorGrid(
                stride=stride,
                shapes=cell_shapes(sizes, self.anchor_ratios, rounded=rounded),
                at_corners=rounded,
            )
            for stride, sizes in zip(strides, self._sizes_of_maps(strides), strict=True)
        ]

    def _sizes_of_maps(self, strides: list[int]) -> list[tuple[float, ...]]:
        sizes = self.anchor_sizes
        if sizes == "auto":
            side = self.size.sides[-1]
            sizes = PAPER_SIZES if len(strides) == 1 else tuple(min(4.0 * s, side) for s in strides)
        return [(size,) for size in sizes] if len(sizes) == len(strides) else [sizes] * len(strides)

    def adapted(self, boxes: Tensor) -> tuple[Self, str]:
        if "auto" not in (self.finest_stride, self.anchor_sizes) or not len(boxes):
            return self, ""
        strides = AUTO_STRIDES if self.finest_stride == "auto" else [self.finest_stride]
        candidates = anchor_layouts(boxes, strides=strides)
        best = adapt_layout(boxes, candidates, self._levels_of, threshold=_MATCH_IOU)
        sizes = self._sizes(best.layout)
        note = (
            f"anchors adapted to {len(boxes)} objects: {', '.join(f'{size:g}' for size in sizes)} px, "
            f"finest stride {best.layout.finest_stride}; they match {best.matched:.1%}"
        )
        values = {"finest_stride": best.layout.finest_stride, "anchor_sizes": sizes}
        changes = {name: value for name, value in values.items() if getattr(self, name) == "auto"}
        return self.model_copy(update=changes), note

    def coverage_changes(self, reason: MissReason) -> Iterator[Mapping[str, object]]:
        if reason == "long":
            yield {"anchor_ratios": (0.25, 0.5, 1.0, 2.0, 4.0)}
            return
        yield {"anchor_sizes": "auto"}
        stride = AUTO_STRIDES[0] if self.finest_stride == "auto" else "auto"
        yield {"anchor_sizes": "auto", "finest_stride": stride}

    def _sizes(self, layout: AnchorLayout) -> tuple[float, ...]:
        """Return the sizes in pixels for a layout, growing by a factor: one a map, or three on one map."""
        if self.anchor_sizes != "auto":
            return self.anchor_sizes
        num = self.num_maps if self.num_maps > 1 else len(PAPER_SIZES)
        factor = (layout.max_scale / layout.min_scale) ** (1 / (num - 1))
        side = self._typical_side()
        return tuple(round(layout.min_scale * factor**i * side, 1) for i in range(num))

    def _levels_of(self, layout: AnchorLayout) -> list[Level]:
        side = self._typical_side()
        sized = self.model_copy(update={"anchor_sizes": self._sizes(layout)})
        strides = [layout.finest_stride << i for i in range(self.num_maps)]
        return [
            Level(
                height=math.ceil(side / grid.stride),
                width=math.ceil(side / grid.stride),
                step=(grid.stride / side, grid.stride / side),
                shapes=tuple((width / side, height / side) for width, height in grid.shapes),
            )
            for grid in sized.grids(strides)
        ]

    def _typical_side(self) -> float:
        """Return the side of a square that has the area of a usual input."""
        short = self.size.sides[-1]
        if self.size.limit is None:
            return short
        return math.sqrt(short * min(self.size.limit, short * _USUAL_RATIO))
