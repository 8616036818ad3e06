"""The base classes of every detector and its settings, and the registry of detectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field
from torch import Tensor

from boxcrew.core.config import Config
from boxcrew.core.registry import Registry
from boxcrew.core.types import Batch, Detections, Losses
from boxcrew.nets.layers import Normalize
from boxcrew.nets.network import Network

Share = Annotated[float, Field(ge=0, le=1)]


class DetectorConfig(Config):
    """Settings common to all detectors."""

    group = "detector"
    shorthand = "name"

    name: str
    size: int = Field(default=300, ge=64, le=2048)  # the side of the square input, in pixels
    score_threshold: Share = 0.01  # detections with a lower score are dropped
    nms_iou: Share = 0.45  # of two detections of a class that overlap more, drop the weaker
    max_detections: int = Field(default=200, ge=1)  # for each image

    def adapted(self, boxes: Tensor) -> tuple[Self, str]:  # noqa: ARG002  no setting here depends on them
        """Return a copy whose `auto` settings are adapted to these objects, and a sentence about it.
        `boxes` (N, 4) are xyxy as shares of the input. The sentence is empty if nothing was `auto`.
        """
        return self, ""


class DetectorNet(Network):
    """A network that finds boxes. Images are (B, 3, size, size), RGB, 0..255, uint8 or float."""

    config_class: ClassVar[type[DetectorConfig]]
    background_rows = 1
    normalize: Normalize

    def __init__(self, config: DetectorConfig, classes: tuple[str, ...]) -> None:
        super().__init__(classes)
        self.config = config

    @abstractmethod
    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the raw outputs of the heads, one row for each image. This is what an export contains."""

    @abstractmethod
    def losses(self, batch: Batch) -> Losses:
        """Return the training losses as sums over the batch."""

    @abstractmethod
    def decode(self, raw: tuple[Tensor, ...]) -> list[Detections]:
        """Turn the raw outputs of `forward` into the detections of each image, in pixels of the input."""

    def predict(self, images: Tensor) -> list[Detections]:
        return self.decode(self(images))

    def starting_overlap(self, boxes: Tensor) -> Tensor | None:  # noqa: ARG002  no default boxes here
        """Return the IoU (N,) of each box (N, 4), xyxy in pixels of the input, with its best default box.
        None if the detector has no default boxes. Training does not change the result.
        """
        return None

    @abstractmethod
    def class_tensors(self) -> Mapping[str, int]: ...

    @abstractmethod
    def backbone_prefix(self) -> str: ...

    def normalization(self) -> Normalize:
        return self.normalize

    @abstractmethod
    def expected_normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]: ...


DETECTORS: Registry[type[DetectorNet]] = Registry("detector", "boxcrew.detectors")
"""All detectors by name; a class joins with `@DETECTORS.register("ssd")`."""


def detector_config_class(name: str) -> type[DetectorConfig]:
    return DETECTORS.get(name).config_class


def build_detector(config: DetectorConfig, classes: tuple[str, ...]) -> DetectorNet:
    return DETECTORS.get(config.name)(config, classes)
