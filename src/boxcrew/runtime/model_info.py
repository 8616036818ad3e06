"""The description that an exported file carries: all that is needed to use it, in any language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.input_size import InputSize
from boxcrew.core.version import VERSION
from boxcrew.data.transforms.pipeline import Pipeline, Resize, TransformsConfig, eval_pipeline

Level = Annotated[int, Field(ge=0, le=255)]


class ImageInput(Config):
    """The way from a photo to the input of a detector."""

    layout: Literal["NCHW"] = "NCHW"
    dtype: Literal["uint8"] = "uint8"
    color: Literal["RGB"] = "RGB"
    size: InputSize
    """Side of the square input in pixels."""
    resize: Resize
    """squash changes the proportions of the photo, letterbox pads it with `fill`."""
    fill: tuple[Level, Level, Level]
    """RGB color around a photo that is padded."""
    exif: Literal["applied"] = "applied"
    """The photo is turned upright first."""
    reduction: Literal["jpeg"] = "jpeg"
    """A JPEG may be decoded with its sides divided by 2, 4 or 8 while it stays larger than the input."""
    mean: tuple[float, ...]
    """The mean of each channel in 0..255; the file subtracts it."""
    std: tuple[float, ...]
    """The deviation of each channel in 0..255; the file divides by it."""

    def pipeline(self) -> Pipeline:
        """Return the steps from a photo to the input, the same as in an evaluation."""
        return eval_pipeline(TransformsConfig(resize=self.resize, fill=self.fill), self.size)


class ProposalSource(Config):
    """The regions that a detector is given besides the photo."""

    method: Literal["fast", "quality"]
    """Variant of selective search."""
    count: int
    """Regions of a photo, at most."""


class CandidateRule(Config):
    """The choice of candidates that is left to the reader of a file, which gives every box."""

    count: int
    """Candidates, at most: those with the highest scores."""
    each: Literal["class", "image"]
    """What has so many candidates."""
    side: int
    """Side of the input in pixels, which boxes are clipped to."""


class Suppression(Config):
    """The rule by which candidates of a detector become detections."""

    inside: bool
    """Whether the file suppresses overlaps itself."""
    score_threshold: float
    """Candidates with this score or less are dropped."""
    nms_iou: float
    """Of two candidates of a class that overlap more than this, the weaker is dropped."""
    max_detections: int
    """Detections of an image, at most."""


class ModelInfo(Config):
    """The description of an exported file: what it is, where it comes from, and how it is used."""

    version: str = VERSION
    """Version of boxcrew that wrote the file."""
    predicts: Literal["boxes", "classes", "text", "images"]
    """What the network predicts."""
    network: str
    """Name of the network, such as picodet."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of their numbers."""
    inputs: tuple[str, ...] = ()
    """Names of the inputs, in their order."""
    precision: Literal["fp32", "int8"] = "fp32"
    """Numbers that the file computes with."""
    image: ImageInput | None = None
    """The input of a detector."""
    proposals: ProposalSource | None = None
    """Further inputs of a detector that starts from regions."""
    candidates: CandidateRule | None = None
    """The step before it, if the file leaves it to the reader."""
    suppression: Suppression | None = None
    """The last step of a detector."""
    weights: str
    """Digest of the weights that were exported."""
    scores: Mapping[str, float] = Field(default_factory=dict)
    """What the file reached when it was made, such as AP."""
    task: Mapping[str, Any]
    """Settings of the task, as in the weight file."""
    facts: Mapping[str, Any]
    """Facts about the data, as in the weight file."""
    seed: int = 0
    """Seed of the run, which decided what it held out."""
