"""From a decoded image to the network's input: geometry as numbers, one resampling, then colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from boxcrew.core.config import Config, commas
from boxcrew.core.types import Image, Target
from boxcrew.data.transforms.colour import PhotometricDistortion
from boxcrew.data.transforms.geometry import (
    Expand,
    Geometry,
    HorizontalFlip,
    Jitter,
    Letterbox,
    MinIoUCrop,
    Scene,
    Squash,
    without_slivers,
)
from boxcrew.data.transforms.view import View

Probability = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[int, Field(ge=0, le=255)]


class TransformsConfig(Config):
    """What is done to images; all but `resize` and `fill` in training only."""

    group: ClassVar[str] = "transforms"

    resize: Literal["squash", "letterbox"] = "squash"
    expand: float = Field(default=4.0, ge=1, le=16)  # the most to zoom out; 1: never
    expand_p: Probability = 0.5
    crop: bool = True  # SSD's minimum-IoU crops
    jitter: float = Field(default=0.0, ge=0, le=1)  # 0.2: zooms by up to 1.2 in or out, off centre
    flip: Probability = 0.5
    colour: float = Field(default=1.0, ge=0, le=2)  # strength of the photometric distortion; 0: none
    fill: Annotated[tuple[Level, Level, Level], commas] = (123, 117, 104)  # RGB where there is no image


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """All transforms of an image, in order."""

    geometry: tuple[Geometry, ...]
    colour: PhotometricDistortion | None
    fill: tuple[int, int, int]

    def __call__(self, image: Image, target: Target, rng: np.random.Generator) -> tuple[Image, Target, View]:
        """The input, its objects in the input's pixels (at least 1 pixel wide and high), and how the
        image was seen. Neither argument is changed, and the result shares no memory with them.
        """
        height, width = image.shape[:2]
        scene = self.look((width, height), target, rng)
        return self.draw(image, scene.view, rng), scene.target, scene.view

    def look(self, size: tuple[int, int], target: Target, rng: np.random.Generator) -> Scene:
        """Where an image of that (width, height) and its objects come to lie. `draw` is the other half: known
        where it lies, a large image need not be read in full.
        """
        scene = Scene(view=View.whole(*size), target=target)
        for step in self.geometry:
            scene = step(scene, rng)
        return without_slivers(scene)

    def draw(self, image: Image, view: View, rng: np.random.Generator, *, reduction: int = 1) -> Image:
        """The input. `reduction` pixels of the original along each axis may have been made one in `image`."""
        pixels = view.resample(image, reduction=reduction)
        if self.colour is not None:
            # Before the fill is added: as in the paper, where colour comes first and the fill stays the mean.
            pixels = self.colour(pixels, rng)
        return view.place(pixels, self.fill)


def train_pipeline(config: TransformsConfig, width: int, height: int) -> Pipeline:
    steps: list[Geometry] = []
    if config.expand > 1 and config.expand_p > 0:
        steps.append(Expand(limit=config.expand, p=config.expand_p))
    if config.crop:
        steps.append(MinIoUCrop())
    if config.jitter > 0:
        steps.append(Jitter(limit=config.jitter))
    if config.flip > 0:
        steps.append(HorizontalFlip(p=config.flip))
    steps.append(_resize(config, width, height))
    colour = PhotometricDistortion(strength=config.colour) if config.colour > 0 else None
    return Pipeline(geometry=tuple(steps), colour=colour, fill=config.fill)


def eval_pipeline(config: TransformsConfig, width: int, height: int) -> Pipeline:
    """The resize alone."""
    return Pipeline(geometry=(_resize(config, width, height),), colour=None, fill=config.fill)


def _resize(config: TransformsConfig, width: int, height: int) -> Squash | Letterbox:
    kind = Squash if config.resize == "squash" else Letterbox
    return kind(width=width, height=height)
