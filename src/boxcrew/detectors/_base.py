"""What every detector is: three names for three jobs, and the classes it knows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

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
    score_threshold: Share = 0.01  # detections below are not given
    nms_iou: Share = 0.45  # of two detections of a class that overlap more, the weaker is dropped
    max_detections: int = Field(default=200, ge=1)  # an image

    def fitted(self, boxes: Tensor) -> tuple[Self, str]:  # noqa: ARG002  nothing here depends on them
        """The same with what is `auto` settled for objects like these, (N, 4) xyxy as shares of the input;
        and a sentence about it, empty if nothing was.
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
    def forward(self, images: Tensor, *extra: Any, **_: Any) -> tuple[Tensor, ...]:
        """The raw numbers of the heads: what is exported. `extra` are the tensors of `Batch.extra`."""

    @abstractmethod
    def losses(self, batch: Batch) -> Losses:
        """What is trained: sums over the batch."""

    @abstractmethod
    def decode(self, raw: tuple[Tensor, ...]) -> list[Detections]:
        """The detections of each image that `forward`'s numbers mean, in pixels of the input."""

    def predict(self, images: Tensor, *extra: Tensor) -> list[Detections]:
        return self.decode(self(images, *extra))

    def starting_overlap(self, boxes: Tensor) -> Tensor | None:  # noqa: ARG002  here nothing starts from a box
        """(N,) for xyxy boxes (N, 4) in pixels of the input: the IoU of each with the best of the boxes that
        the detector starts from, whatever it learns. None: it starts from no boxes.
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
"""Members say `@DETECTORS.register("ssd")`; their `config_class` says what can be set."""


def detector_config_class(name: str) -> type[DetectorConfig]:
    return DETECTORS.get(name).config_class


def build_detector(config: DetectorConfig, classes: tuple[str, ...]) -> DetectorNet:
    return DETECTORS.get(config.name)(config, classes)
