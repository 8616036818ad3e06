"""SPPNet (He et al. 2014): one feature map for all regions, pooled into a pyramid of bins for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.config import commas
from boxcrew.core.input_size import InputSize
from boxcrew.detectors._base import DETECTORS
from boxcrew.detectors._regions import Count, require_sizes
from boxcrew.detectors._solved_regions import SolvedConfig, SolvedHead, SolvedRegions
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.fpn import Narrow
from boxcrew.nets.layers import Normalize
from boxcrew.nets.pyramid_pooling import pyramid_pool

Bins = Annotated[int, Field(ge=1, le=8)]
Scale = Annotated[float, Field(gt=0, le=1)]


class SppnetConfig(SolvedConfig):
    name: Literal["sppnet"] = "sppnet"
    size: InputSize = InputSize((320,))
    """Input in pixels: a square such as 320, short:long such as 600:1000, or several, one for each step."""
    proposals: Count = 500
    """Proposals of an image, at most."""
    stride: int = Field(default=16, ge=4, le=32)
    """Stride of the map that regions are pooled from."""
    pyramid: Annotated[tuple[Bins, ...], commas, Field(min_length=1)] = (1, 2, 3, 6)
    """Levels of the pyramid: n stands for n x n bins."""
    scales: Annotated[tuple[Scale, ...], commas, Field(min_length=1)] = (1.0,)
    """Factors of the input that maps are computed at; a region is pooled at the one that suits its size."""
    region_side: int = Field(default=224, ge=16, le=1024)
    """Side in pixels that a region should have at its scale, if there are several."""
    regions: Count = 64
    """Regions of an image that are fine-tuned on."""


@DETECTORS.register("sppnet")
class Sppnet(SolvedRegions):
    """A backbone, pyramid pooling of regions, fully connected layers, then SVMs and box regression."""

    config_class = SppnetConfig
    config: SppnetConfig
    background_from = 0.1
    ridge = 4000.0
    regression_iou = 0.5

    def __init__(self, config: SppnetConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        with torch.device("meta"):
            require_sizes(config, _backbone(config).eval())
        self.backbone = _backbone(config)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        self.neck = Narrow(self.backbone.channels[0], width=config.neck)
        num_bins = sum(n**2 for n in config.pyramid)
        self.head = SolvedHead(config.neck * num_bins, config.head_width, len(classes))

    def pool(self, images: Tensor, boxes: Tensor) -> Tensor:
        pooled = [self._pool_at(scale, images, boxes) for scale in self.config.scales]
        if len(pooled) == 1:
            return pooled[0]
        chosen = nearest_scale(boxes, self.config.scales, side=self.config.region_side).flatten()
        return torch.stack(pooled)[chosen, torch.arange(chosen.shape[0], device=chosen.device)]

    def _pool_at(self, scale: float, images: Tensor, boxes: Tensor) -> Tensor:
        """Return the features (B * K, P) of regions (B, K, 4) from the map of the scaled images."""
        height, width = images.shape[-2:]
        size = max(1, round(height * scale)), max(1, round(width * scale))
        if scale != 1:
            images = F.interpolate(images, size, mode="bilinear", antialias=True)
            boxes = boxes * boxes.new_tensor([size[1] / width, size[0] / height] * 2)
        features = self.neck(self.backbone(images))[0]
        return pyramid_pool(features, boxes, stride=self.backbone.strides[0], levels=self.config.pyramid)


def nearest_scale(boxes: Tensor, scales: Sequence[float], *, side: int) -> Tensor:
    """Return for each region (…, 4) the number of the scale at which its area is nearest to side x side (He
    et al. 2014, section 4.1).
    """
    areas = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)
    scaled = areas[..., None] * boxes.new_tensor(scales).square()
    return (scaled - side**2).abs().argmin(dim=-1)


def _backbone(config: SppnetConfig) -> Backbone:
    return Backbone(config.backbone, finest_stride=config.stride, num_maps=1)
