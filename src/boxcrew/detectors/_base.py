"""The base classes of every detector and its settings, and the registry of detectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import Field, field_validator
from torch import Tensor

from boxcrew.core.config import Config
from boxcrew.core.input_size import InputSize
from boxcrew.core.registry import Registry
from boxcrew.core.stage import Stage
from boxcrew.core.types import Batch, Detections, Losses, PaddedDetections
from boxcrew.nets.layers import Normalize
from boxcrew.nets.network import ClassRows, Network
from boxcrew.nets.static import nms_top_k, score_ranks, top_ranked

MissReason = Literal["between", "small", "large", "long"]
"""Why default boxes do not match a box: it lies between them, or has another size or shape."""

HeightWidth = tuple[int, int]

_EXACT = 2.0**40  # times a score of single precision is an integer

Share = Annotated[float, Field(ge=0, le=1)]


class DetectorConfig(Config):
    """Settings common to all detectors."""

    group = "detector"
    shorthand = "name"
    sizes: ClassVar[tuple[int, ...]] = (128, 192, 256, 320, 384, 512, 640, 768, 1024, 1280)  # worth trying
    takes_several_sizes: ClassVar[bool] = True  # such as size=256,320
    takes_any_shape: ClassVar[bool] = True  # inputs that are not square, such as size=600:1000
    learned_from: ClassVar[str] = "default boxes"  # what objects are matched to in training
    match_setting: ClassVar[str] = ""  # the setting with the IoU that matches a default box to an object

    name: str
    """Detector."""
    size: InputSize = InputSize((320,))
    """Input in pixels: a square such as 320, short:long such as 600:1000, or several, one for each step."""
    score_threshold: Share = 0.01
    """Detections with a lower score are dropped."""
    nms_iou: Share = 0.45
    """Of two detections of a class that overlap more than this, the weaker is dropped."""
    max_detections: int = Field(default=200, ge=1)
    """Detections of an image, at most."""

    @property
    def min_match_iou(self) -> float:
        """The IoU from which on an object is matched well."""
        return float(getattr(self, self.match_setting)) if self.match_setting else 0.5

    @property
    def num_regions(self) -> int:
        """The most regions of an image that the detector is given besides its pixels; 0 if it takes none."""
        return 0

    @field_validator("size", mode="after")
    @classmethod
    def _takes_size(cls, size: InputSize) -> InputSize:
        if size.limit is not None and not cls.takes_any_shape:
            raise ValueError("this detector takes squares only, such as 320")
        if len(size.sides) > 1 and not cls.takes_several_sizes:
            raise ValueError("this detector takes one size only")
        return size

    def adapted(self, boxes: Tensor) -> tuple[Self, str]:  # noqa: ARG002  no setting here depends on them
        """Return a copy whose `auto` settings are adapted to these objects, and a sentence about it.
        `boxes` (N, 4) are xyxy as shares of the input. The sentence is empty if nothing was `auto`.
        """
        return self, ""

    def coverage_changes(self, reason: MissReason) -> Iterator[Mapping[str, object]]:  # noqa: ARG002
        """Yield changes of settings that may match more boxes, if most are missed for that reason.
        Changes that make the detector slower come last.
        """
        yield from ()

    def require_solvable(self, num_images: int, folder: Path) -> None:
        """Raise an error before training if a solve stage in `folder` would fail after it: because a library
        is missing, or disk space for so many training images.
        """

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of the training, in order; none if it is a single run."""
        return ()


class Candidates(NamedTuple):
    """N boxes of each image that may be objects, in any order."""

    boxes: Tensor  # (B, N, 4) xyxy in pixels of the input, clipped to it
    scores: Tensor  # (B, N) 0..1
    labels: Tensor  # (B, N) 0..C-1


class ScoredBoxes(NamedTuple):
    """All N boxes of each image, of which candidates are chosen."""

    boxes: Tensor  # (B, N, 4) xyxy in pixels of the input, not clipped
    scores: Tensor  # (B, N, C) 0..1, of each class


class ImageBatches(Protocol):
    """Images in batches, in a fixed order; every iteration is one more pass over all of them."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int:
        """Return the number of images."""


class DetectorNet(Network):
    """A network that finds boxes. Images are (B, 3, H, W), RGB, 0..255, uint8 or float; H and W are a size
    that `config.size` can give, the same for all images of a batch.

    Shapes are static: `forward`, `losses` and `decode` run on tensors without data, and no shape or branch
    in them depends on values. Where a number of things varies, there is a fixed count with a mask.
    """

    config_class: ClassVar[type[DetectorConfig]]
    num_candidates: ClassVar[int] = 400  # boxes that go into non-maximum suppression, at most
    candidates_each: ClassVar[Literal["class", "image"]] = "image"  # what has so many
    not_exportable: ClassVar[str] = ""  # why no file for other programs can be made of it, if so
    normalize: Normalize

    def __init__(self, config: DetectorConfig, classes: tuple[str, ...]) -> None:
        super().__init__(classes)
        self.config = config

    @abstractmethod
    def forward(self, images: Tensor, *extra: Any, **_: Any) -> tuple[Tensor, ...]:
        """Return the raw outputs of the heads, one row for each image. This is what an export contains.
        `extra` are the tensors of `Batch.extra`, if the detector takes any.
        """

    @abstractmethod
    def losses(self, batch: Batch) -> Losses:
        """Return the training losses as sums over the batch."""

    @abstractmethod
    def candidates(self, raw: tuple[Tensor, ...], size: HeightWidth) -> Candidates:
        """Turn the raw outputs of `forward` into boxes with scores, of which suppression chooses. `size` is
        the (height, width) of the images that `forward` was given.
        """

    def scored_boxes(self, raw: tuple[Tensor, ...], size: HeightWidth) -> ScoredBoxes | None:  # noqa: ARG002
        """Turn the raw outputs of `forward` into all boxes with the score of each class, for engines that
        cannot choose; None if the detector itself works on what it has chosen.
        """
        return None

    def decode(self, raw: tuple[Tensor, ...], size: HeightWidth) -> PaddedDetections:
        """Turn the raw outputs of `forward` into `max_detections` for each image, in pixels of the input.
        `size` is the (height, width) of the images that `forward` was given.
        """
        return self.suppress(self.candidates(raw, size))

    def predict(self, images: Tensor, *extra: Tensor) -> list[Detections]:
        return self.decode(self(images, *extra), input_hw(images)).unpad()

    def suppress(
        self, candidates: Candidates, *, score_threshold: float | Tensor | None = None
    ) -> PaddedDetections:
        """Return the `max_detections` best candidates of each image, by the thresholds of the settings or
        another `score_threshold`.
        """
        config, (boxes, scores, labels) = self.config, candidates
        is_likely = scores > (config.score_threshold if score_threshold is None else score_threshold)
        chosen = nms_top_k(
            boxes,
            score_ranks(scores),
            labels,
            is_likely,
            num_groups=len(self.classes),
            iou=config.nms_iou,
            count=config.max_detections,
        )
        exact = (chosen.gather(scores) * _EXACT).long()
        chosen = chosen.reordered(top_ranked(exact, count=config.max_detections))
        return PaddedDetections(
            boxes=chosen.gather(boxes),
            scores=chosen.gather(scores),
            labels=chosen.gather(labels),
            valid=chosen.valid,
        )

    def solve(self, stage: str, batches: ImageBatches, workspace: Path) -> None:
        """Set layers or buffers in closed form, for the solve stage of that name.

        `workspace` is a folder for large results on the way. What a killed process left there is still there
        when the stage is repeated, and all of it is removed afterwards.

        Each iteration over `batches` is a pass over all training images, in the same order and without
        augmentation: with inputs and `extra` as in `forward`, targets in pixels of the input, and the same
        draws in every pass. The network is on the CPU, in evaluation mode and without gradients. The result
        must depend on nothing but the network and the batches.
        """
        raise NotImplementedError(f"{self.config.name} has no solve stage {stage}")

    def proposals(self, images: Tensor) -> list[Tensor] | None:  # noqa: ARG002  none here
        """Return for each image the regions (N, 4), xyxy in pixels, that are looked at more closely, best
        first; None for a detector of one stage.
        """
        return None

    def best_anchor_iou(self, boxes: Tensor) -> Tensor | None:  # noqa: ARG002  no default boxes here
        """Return the IoU (N,) of each box (N, 4), xyxy in pixels of the input, with its best default box,
        or with the best box that its points can give; None if the detector has neither. Training does not
        change the result.
        """
        return None

    @abstractmethod
    def class_tensors(self) -> Mapping[str, ClassRows]: ...

    def normalization(self) -> Normalize:
        return self.normalize


DETECTORS: Registry[type[DetectorNet]] = Registry("detector", "boxcrew.detectors")
"""All detectors by name; a class joins with `@DETECTORS.register("ssd")`."""


def input_hw(images: Tensor) -> HeightWidth:
    """Return the (height, width) of images (B, 3, H, W)."""
    height, width = images.shape[-2:]
    return height, width


def detector_config_class(name: str) -> type[DetectorConfig]:
    return DETECTORS.get(name).config_class


def build_detector(config: DetectorConfig, classes: tuple[str, ...]) -> DetectorNet:
    return DETECTORS.get(config.name)(config, classes)
