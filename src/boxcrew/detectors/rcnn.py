"""R-CNN (Girshick et al. 2014): a network that classifies a warped crop of the image for every region."""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.detectors._base import DETECTORS
from boxcrew.detectors._solved_regions import SolvedConfig, SolvedHead, SolvedRegions
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.fpn import Narrow
from boxcrew.nets.layers import Normalize
from boxcrew.nets.region_crops import crop_regions

_AT_ONCE = 16  # crops: on CPUs, more at once are slower


class RcnnConfig(SolvedConfig):
    name: Literal["rcnn"] = "rcnn"
    size: InputSize = InputSize((320,))
    """Image that crops are taken from, in pixels: a square such as 320, or short:long such as 600:1000."""
    crop_size: int = Field(default=96, ge=32, le=512, multiple_of=32)
    """Side of the square that every region is warped to, in pixels."""
    context: int = Field(default=16, ge=0, le=64)
    """Pixels of the crop, on each side, that show what is around the region."""
    stride: int = Field(default=32, ge=8, le=32)
    """Stride of the last map of the backbone."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if 2 * self.context >= self.crop_size:
            raise UsageError(
                f"detector.context={self.context}: leaves no room for the region in a crop of "
                f"detector.crop_size={self.crop_size} pixels",
                advice="use less context or larger crops",
            )
        return self


@DETECTORS.register("rcnn")
class Rcnn(SolvedRegions):
    """A backbone that sees every region alone, then SVMs and box regression."""

    config_class = RcnnConfig
    config: RcnnConfig
    not_exportable = "it cuts regions out of the photo and runs the backbone on each"
    background_from = 0.0
    ridge = 1000.0
    regression_iou = 0.6

    def __init__(self, config: RcnnConfig, classes: tuple[str, ...]) -> None:
        super().__init__(config, classes)
        self.backbone = Backbone(config.backbone, finest_stride=config.stride, num_maps=1)
        self.normalize = Normalize(*self.backbone.expected_normalization())
        self.neck = Narrow(self.backbone.channels[0], width=config.neck)
        cells = -(-config.crop_size // self.backbone.strides[0])
        self.head = SolvedHead(config.neck * cells**2, config.head_width, len(classes))

    def pool(self, images: Tensor, boxes: Tensor) -> Tensor:
        if self.training:  # BatchNorms see all crops of a step
            return self._pool_crops(images, boxes).flatten(0, 1)
        num = max(1, _AT_ONCE // len(images)) if images.device.type == "cpu" else boxes.shape[1]
        parts = [self._pool_crops(images, some) for some in torch.split(boxes, num, dim=1)]
        return torch.cat(parts, dim=1).flatten(0, 1)

    def _pool_crops(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Return the features (B, K, P) of regions (B, K, 4)."""
        crops = crop_regions(images, boxes, size=self.config.crop_size, context=self.config.context)
        pooled: Tensor = self.neck(self.backbone(crops))[0]
        return pooled.reshape(*boxes.shape[:2], -1)
