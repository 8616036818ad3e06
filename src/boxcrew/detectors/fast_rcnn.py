"""Fast R-CNN (Girshick 2015): one feature map for all regions, which a head classifies and moves at once."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Batch, Losses
from boxcrew.detectors._base import DETECTORS, Share
from boxcrew.detectors._regions import (
    Count,
    ProposalConfig,
    RegionDetector,
    require_sizes,
    sample_training_regions,
)
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.fpn import Narrow
from boxcrew.nets.layers import Normalize, TopDown
from boxcrew.nets.region_head import RegionHead, moved_boxes, region_losses
from boxcrew.nets.regions import Pooling, pool_regions

_BETA = 1.0  # from which smooth L1 is straight (equation 3)


class FastRcnnConfig(ProposalConfig):
    name: Literal["fast_rcnn"] = "fast_rcnn"
    size: InputSize = InputSize((320,))
    """Input in pixels: a square such as 320, short:long such as 600:1000, or several, one for each step."""
    stride: int = Field(default=16, ge=4, le=32)
    """Stride of the map that regions are pooled from."""
    top_down: bool = True
    """Whether coarser maps of the backbone are added to that map, which the paper does not do."""
    neck: int = Field(default=128, ge=16, le=1024, multiple_of=16)
    """Channels of the map that regions are pooled from."""
    regions: Count = 64
    """Regions of an image that the head learns from."""
    background_iou: Share = 0.1
    """Regions that overlap every object by less than this learn nothing."""
    pooling: Pooling = "max"
    """Pooling of regions: max is RoI pooling as in the paper, align is RoIAlign."""
    head_width: int = Field(default=512, ge=16, le=4096)
    """Outputs of each fully connected layer of the head."""


@DETECTORS.register("fast_rcnn")
class FastRcnn(RegionDetector):
    """A backbone, and a head for the regions that selective search proposes."""

    config_class = FastRcnnConfig
    config: FastRcnnConfig

    def __init__(self, config: FastRcnnConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        with torch.device("meta"):
            require_sizes(config, _backbone(config).eval())
        self.backbone = _backbone(config)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        self.neck: nn.Module = (
            TopDown(self.backbone.channels, width=config.neck, num_maps=1)
            if config.top_down
            else Narrow(self.backbone.channels[0], width=config.neck)
        )
        self.head = RegionHead(config.neck, config.head_width, len(classes), convolutions=False)

    def forward(self, images: Tensor, regions: Tensor, valid: Tensor) -> tuple[Tensor, ...]:
        """Return for each region (B, K, 4) scores before softmax (B, K, 1 + C), background first, boxes
        (B, K, C, 4), and 1 where it is valid (B, K).
        """
        scores, offsets = self._classify(images, regions)
        return scores, moved_boxes(offsets, regions.to(offsets.dtype)), valid.to(scores.dtype)

    def losses(self, batch: Batch) -> Losses:
        """Return the losses of some regions of each image, divided by their number; the weight is the number
        of images, so that any split of a step learns the same.
        """
        config = self.config
        dtype, background_from = self.normalize.mean.dtype, config.background_iou
        sample = sample_training_regions(
            batch, config, dtype, count=config.regions, background_from=background_from
        )
        terms = region_losses(*self._classify(batch.inputs, sample.boxes), sample, beta=_BETA)
        return Losses(terms=terms, weight=sample.boxes.new_tensor(float(len(batch))))

    def _classify(self, images: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (B, K, 1 + C) and offsets (B, K, C, 4) of regions (B, K, 4)."""
        maps = self.neck(self.backbone(self.normalize(images)))
        pooled = pool_regions(maps, self.backbone.strides[:1], boxes, how=self.config.pooling)
        scores, offsets = (output.unflatten(0, boxes.shape[:2]) for output in self.head(pooled))
        exact = torch.promote_types(scores.dtype, torch.float32)  # half precision is too coarse for boxes
        return scores.to(exact), offsets.to(exact)


def _backbone(config: FastRcnnConfig) -> Backbone:
    return Backbone(config.backbone, finest_stride=config.stride, num_maps=None if config.top_down else 1)
