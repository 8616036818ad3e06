"""The transforms that turn a decoded image into the network's input: geometry, one resampling, then color."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from boxcrew.core.config import Config, commas
from boxcrew.core.errors import DataError
from boxcrew.core.input_size import Extent, InputSize
from boxcrew.core.types import Image, Target
from boxcrew.data.transforms.color import PhotometricDistortion
from boxcrew.data.transforms.geometry import (
    Expand,
    Geometry,
    HorizontalFlip,
    Jitter,
    Letterbox,
    MinIoUCrop,
    Scene,
    Squash,
    Tile,
    without_slivers,
)
from boxcrew.data.transforms.mosaic import Mixing
from boxcrew.data.transforms.view import Pair, View

ReadReduced = Callable[[int], Image]
"""Reads an image with its sides divided by 1, 2, 4 or 8, rounded up, or in full size."""

Probability = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[int, Field(ge=0, le=255)]
Resize = Literal["squash", "letterbox"]


class TransformsConfig(Config):
    """Settings of the transforms; all but `resize` and `fill` are used in training only."""

    group: ClassVar[str] = "transforms"

    resize: Resize = "squash"
    """How an image becomes a square input: squash changes its proportions, letterbox pads it."""
    expand: float = Field(default=4.0, ge=1, le=16)
    """Largest factor to zoom out by; 1 turns it off."""
    expand_p: Probability = 0.5
    """Probability that an image is zoomed out."""
    crop: bool = True
    """Crop with a minimum IoU, as SSD does."""
    jitter: float = Field(default=0.0, ge=0, le=1)
    """Mild zoom in or out, off center: 0.2 zooms by a factor of up to 1.2."""
    flip: Probability = 0.5
    """Probability that an image is mirrored."""
    color: float = Field(default=1.0, ge=0, le=2)
    """Strength of the photometric distortion; 0 turns it off."""
    fill: Annotated[tuple[Level, Level, Level], commas] = (123, 117, 104)
    """RGB color where there is no image."""
    mosaic: Probability = 0.0
    """Probability that a sample shows parts of four images, each at a random size."""
    copy_paste: Probability = 0.0
    """Probability that objects of another image are pasted into a sample, as rectangles."""
    mixup: Probability = 0.0
    """Probability that a sample is blended with another one."""
    mix_until: Probability = 0.8
    """Fraction of the run after which samples are made of one image each, so that it ends with plain ones."""

    @property
    def mixing(self) -> Mixing | None:
        """The mixing of several images into one sample; None if there is none."""
        mixing = Mixing(mosaic=self.mosaic, copy_paste=self.copy_paste, mixup=self.mixup)
        return None if mixing == Mixing() else mixing


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """All transforms of an image, in their order: augmentation, resizing to the input, then color."""

    geometry: tuple[Geometry, ...]
    size: InputSize
    resize: Resize
    color: PhotometricDistortion | None
    fill: tuple[int, int, int]
    canvas: Extent | None = None  # (width, height) of the input; None: as large as each image needs
    tile: Extent | None = None  # (width, height) of the region of a mosaic to make; None: the full input

    def for_step(self, index: int, images: Iterable[Extent]) -> Pipeline:
        """Return the pipeline of one step: the input has the size number `index`, and room for all of the
        step's images, so that no share of them changes what a sample looks like.
        """
        size = self.size.at(index)
        return replace(self, size=size, canvas=size.canvas(images))

    def for_tile(self, tile: Extent) -> Pipeline:
        """Return a pipeline that makes a region of this (width, height) of a mosaic."""
        return replace(self, tile=tile)

    def canvas_of(self, image: Extent) -> Extent:
        """Return the (width, height) of the input for an image of that (width, height)."""
        return self.canvas or self.size.canvas([image])

    def __call__(self, image: Image, target: Target, rng: np.random.Generator) -> tuple[Image, Target, View]:
        """Return the input, its objects in the input's pixels (at least 1 pixel wide and high), and the view
        that maps the image to the input. The result shares no memory with the arguments.
        """
        height, width = image.shape[:2]
        scene = self.transform_geometry((width, height), target, rng)
        return self.render(image, scene.view, rng), scene.target, scene.view

    def transform_geometry(self, image: Extent, target: Target, rng: np.random.Generator) -> Scene:
        """Return where an image of this (width, height) and its objects appear in the input. It comes before
        `render` because a large image need not be read in full once its view is known.
        """
        scene = Scene(view=View.identity(*image), target=target)
        for step in (*self.geometry, self._resizing(image)):
            scene = step(scene, rng)
        return without_slivers(scene)

    def make_input(
        self, image: Extent, target: Target, read: ReadReduced, rng: np.random.Generator, *, name: str
    ) -> tuple[Image, Scene]:
        """Return the input for an image of this (width, height), and where the image and its objects appear
        in it. Everything between a decoded file and the network happens here, so that training, evaluation,
        prediction and exported models see the same. `DataError` if the image, which it calls `name`, has
        another size.
        """
        scene = self.transform_geometry(image, target, rng)
        pixels = read(scene.view.reduction)
        reduction = _actual_reduction(image, pixels, at_most=scene.view.reduction, name=name)
        return self.render(pixels, scene.view, rng, reduction=reduction), scene

    def scale(self, image: Extent) -> Pair:
        """Return the factors, in x and y, by which an image of this (width, height) is resized."""
        scene = Scene(view=View.identity(*image), target=Target.of([], []))
        view = self._resizing(image)(scene, np.random.default_rng(0)).view
        return view.x.scale, view.y.scale

    def _resizing(self, image: Extent) -> Geometry:
        """Return the step to the input, or to a tile of it. What augmentation made of an image gets the room
        of the image.
        """
        step = self._resizing_alone(image)
        return step if self.tile is None else Tile(resizing=step, width=self.tile[0], height=self.tile[1])

    def _resizing_alone(self, image: Extent) -> Geometry:
        width, height = self.size.scaled(image)
        if self.size.limit is not None:
            canvas = self.canvas_of(image)
            # An image that is mixed into a step of smaller ones has to fit too.
            return Letterbox(width=min(width, canvas[0]), height=min(height, canvas[1]), canvas=canvas)
        return (Squash if self.resize == "squash" else Letterbox)(width=width, height=height)

    def render(self, image: Image, view: View, rng: np.random.Generator, *, reduction: int = 1) -> Image:
        """Return the input; `reduction` is the factor by which `image` was reduced in reading."""
        pixels = view.resample(image, reduction=reduction)
        if self.color is not None:
            # Before the fill is added: as in the paper, the fill stays the mean color.
            pixels = self.color(pixels, rng)
        return view.pad(pixels, self.fill)


def _actual_reduction(image: Extent, pixels: Image, *, at_most: int, name: str) -> int:
    """Return the factor by which an image of this (width, height) was reduced in reading: `at_most` or 1."""
    (width, height), (rows, columns) = image, pixels.shape[:2]
    for reduction in (at_most, 1):
        if (columns, rows) == (-(-width // reduction), -(-height // reduction)):
            return reduction
    raise DataError(f"{name}: is {columns} x {rows} pixels now, was {width} x {height}")


def train_pipeline(config: TransformsConfig, size: InputSize) -> Pipeline:
    steps: list[Geometry] = []
    if config.expand > 1 and config.expand_p > 0:
        steps.append(Expand(limit=config.expand, p=config.expand_p))
    if config.crop:
        steps.append(MinIoUCrop())
    if config.jitter > 0:
        steps.append(Jitter(limit=config.jitter))
    if config.flip > 0:
        steps.append(HorizontalFlip(p=config.flip))
    color = PhotometricDistortion(strength=config.color) if config.color > 0 else None
    return Pipeline(geometry=tuple(steps), size=size, resize=config.resize, color=color, fill=config.fill)


def eval_pipeline(config: TransformsConfig, size: InputSize) -> Pipeline:
    """Return a pipeline that only resizes, to the largest of several sizes."""
    return Pipeline(geometry=(), size=size.largest, resize=config.resize, color=None, fill=config.fill)
