"""SSDLite (MobileNetV2 paper, section 6.2): separable heads on any timm backbone, any input size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.detectors._anchor_adapt import AnchorLayout, adapt_layout, anchor_layouts
from boxcrew.detectors._base import DETECTORS, MissReason
from boxcrew.detectors._multibox import MultiBoxConfig, MultiBoxNet
from boxcrew.nets.anchors import Level, paper_shapes
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.layers import Normalize, TopDown, conv_norm, separable_head

RATIOS = (2.0, 3.0)
AUTO_STRIDES = (8, 16)  # candidates for the finest map
AS_PUBLISHED = AnchorLayout(finest_stride=16, min_scale=0.1, max_scale=0.9)

Auto = Literal["auto"]
Stride = Annotated[int, Field(ge=4, le=32)]


class SsdLiteConfig(MultiBoxConfig):
    name: Literal["ssdlite"] = "ssdlite"
    size: InputSize = InputSize((320,))
    """Side of the square input in pixels, or several such as 256,320: one for each step."""
    backbone: str = "mobilenetv3_large_100"
    """Name of a timm network with two or more feature maps."""
    # `auto` is adapted to the boxes of the training set once, and written to the run's config.yaml.
    finest_stride: Stride | Auto = AS_PUBLISHED.finest_stride
    """Stride of the finest map with a head; auto adapts it to the boxes of the data."""
    neck: int = Field(default=0, ge=0, le=512, multiple_of=16)
    """Channels of a top-down path between the maps; 0 has none."""
    levels: int = Field(default=6, ge=2, le=8)
    """Maps with a head, at most."""
    # The smallest and the largest default box, as shares of the input.
    min_scale: Annotated[float, Field(gt=0, lt=1)] | Auto = AS_PUBLISHED.min_scale
    """Size of the smallest default boxes as a fraction of the input; auto adapts it to the data."""
    max_scale: Annotated[float, Field(gt=0, le=1)] | Auto = AS_PUBLISHED.max_scale
    """Size of the largest default boxes as a fraction of the input; auto adapts it to the data."""
    spacing: Literal["even", "growing"] = "even"
    """Sizes between smallest and largest: even steps as published, or growing by a factor."""

    @model_validator(mode="after")
    def _scales_grow(self) -> Self:
        if "auto" not in (self.min_scale, self.max_scale) and self.layout.min_scale >= self.layout.max_scale:
            raise UsageError(
                f"detector.min_scale={self.min_scale}: must be below detector.max_scale={self.max_scale}"
            )
        return self

    @property
    def layout(self) -> AnchorLayout:
        """The layout of the default boxes; what is still `auto` is as published."""
        return AnchorLayout(
            finest_stride=AS_PUBLISHED.finest_stride if self.finest_stride == "auto" else self.finest_stride,
            min_scale=AS_PUBLISHED.min_scale if self.min_scale == "auto" else self.min_scale,
            max_scale=AS_PUBLISHED.max_scale if self.max_scale == "auto" else self.max_scale,
        )

    def adapted(self, boxes: Tensor) -> tuple[Self, str]:
        if "auto" not in (self.finest_stride, self.min_scale, self.max_scale) or not len(boxes):
            return self, ""
        candidates = anchor_layouts(
            boxes,
            strides=AUTO_STRIDES if self.finest_stride == "auto" else [self.finest_stride],
            min_scale=None if self.min_scale == "auto" else self.min_scale,
            max_scale=None if self.max_scale == "auto" else self.max_scale,
        )
        best = adapt_layout(boxes, candidates, self._levels_of, threshold=self.match_iou)
        layout = best.layout
        note = (
            f"default boxes adapted to {len(boxes)} objects: {layout.min_scale:.2f} to "
            f"{layout.max_scale:.2f} of the input, finest stride {layout.finest_stride}; "
            f"they match {best.matched:.1%}"
        )
        changes = {name: value for name, value in vars(layout).items() if getattr(self, name) == "auto"}
        return self.model_copy(update=changes), note

    def coverage_changes(self, reason: MissReason) -> Iterator[Mapping[str, object]]:
        if reason == "long":
            return
        scales = {"min_scale": "auto", "max_scale": "auto"}
        yield scales
        if reason == "large":
            yield {**scales, "levels": 6}
        else:
            yield {**scales, "finest_stride": AUTO_STRIDES[0] if self.finest_stride == "auto" else "auto"}

    def _levels_of(self, layout: AnchorLayout) -> list[Level]:
        """Return the levels for a layout, with map sizes rounded as most backbones do."""
        size = self.size.sides[-1]
        sides = [math.ceil(size / (layout.finest_stride << i)) for i in range(self.levels)]
        while len(sides) > 2 and sides[-2] == 1:
            sides.pop()
        return _levels(layout, sides, spacing=self.spacing)


@DETECTORS.register("ssdlite")
class SsdLite(MultiBoxNet):
    """A backbone with heads on its maps from `finest_stride` on, and on extra layers that halve the last."""

    config_class = SsdLiteConfig
    config: SsdLiteConfig

    def __init__(self, config: SsdLiteConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.backbone = Backbone(config.backbone, finest_stride=config.layout.finest_stride)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        map_sides = {size: self._backbone_sides(size) for size in config.size.sides}
        largest = map_sides[config.size.sides[-1]]
        channels = self.backbone.channels[: config.levels]
        self.neck = TopDown(channels, width=config.neck) if config.neck else None
        if config.neck:
            channels = [config.neck] * len(channels)
        self.extras = nn.ModuleList()
        while len(channels) < config.levels and largest[-1] > 1:
            width = config.neck or max(128, 512 >> len(self.extras))
            self.extras.append(_extra(channels[-1], width))
            channels.append(width)
            for sides in map_sides.values():
                sides.append((sides[-1] + 1) // 2)
        blocks = 2 + 2 * len(RATIOS)
        self.class_heads = nn.ModuleList(separable_head(c, blocks * (1 + len(classes))) for c in channels)
        self.box_heads = nn.ModuleList(separable_head(c, blocks * 4) for c in channels)
        for layers in (self.extras, self.class_heads, self.box_heads):
            layers.apply(_initialize)
        self.set_levels(
            {size: _levels(config.layout, sides, spacing=config.spacing) for size, sides in map_sides.items()}
        )

    def features(self, images: Tensor) -> list[Tensor]:
        maps: list[Tensor] = self.backbone(images)[: self.config.levels]
        if self.neck is not None:
            maps = self.neck(maps)
        for layer in self.extras:
            maps.append(layer(maps[-1]))
        return maps

    def backbone_prefix(self) -> str:
        return "backbone.body."

    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.backbone.expected_normalization()

    def _backbone_sides(self, size: int) -> list[int]:
        """Return the side of each map, by a forward pass: networks round odd sizes in their own ways."""
        was_training = self.backbone.training
        try:
            with torch.no_grad():
                maps = self.backbone.eval()(torch.zeros(1, 3, size, size))
        except (AssertionError, RuntimeError) as error:  # transformers of a fixed size
            raise UsageError(
                f"detector.size={size}: not a size that detector.backbone={self.backbone.name} takes: {error}"
            ) from None
        self.backbone.train(was_training)
        return [int(m.shape[-1]) for m in maps[: self.config.levels]]


def _extra(inputs: int, outputs: int) -> nn.Sequential:
    middle = outputs // 2
    return nn.Sequential(
        conv_norm(inputs, middle, 1),
        conv_norm(middle, middle, 3, stride=2, groups=middle),
        conv_norm(middle, outputs, 1),
    )


def _levels(layout: AnchorLayout, sides: list[int], *, spacing: str) -> list[Level]:
    steps = len(sides) - 1
    if spacing == "even":  # SSD, equation 4
        span = layout.max_scale - layout.min_scale
        scales = [layout.min_scale + span * i / steps for i in range(steps + 1)] + [1.0]
    else:
        factor = (layout.max_scale / layout.min_scale) ** (1 / steps)
        scales = [min(1.0, layout.min_scale * factor**i) for i in range(steps + 2)]
    return [
        Level(height=side, width=side, step=(1 / side, 1 / side), shapes=paper_shapes(low, high, RATIOS))
        for side, (low, high) in zip(sides, pairwise(scales), strict=True)
    ]


def _initialize(layer: nn.Module) -> None:
    if isinstance(layer, nn.Conv2d):
        nn.init.normal_(layer.weight, std=0.03)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
