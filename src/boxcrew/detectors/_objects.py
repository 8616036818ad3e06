"""The objects of a data set, as boxes on the input of a detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from boxcrew.core.boxes import clip
from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Floats, Ints, Target
from boxcrew.data.loading.order import sample_rng
from boxcrew.data.transforms.pipeline import TransformsConfig, eval_pipeline
from boxcrew.detectors._base import DetectorConfig

AnyDetector = TypeVar("AnyDetector", bound=DetectorConfig)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objects:
    """N boxes with the sizes of their images."""

    boxes: Floats  # (N, 4) xyxy in pixels of the original images
    images: Ints  # (N,) indices into `sizes`
    sizes: tuple[tuple[int, int], ...]  # distinct (width, height) of images

    def select(self, keep: Ints) -> Objects:
        return Objects(boxes=self.boxes[keep], images=self.images[keep], sizes=self.sizes)

    def on_input(self, transforms: TransformsConfig, size: InputSize) -> tuple[Floats, Floats]:
        """Return the boxes (N, 4) in pixels of the input, resized as in an evaluation, and the size
        (N, 2), width and height, of their inputs.
        """
        pipeline = eval_pipeline(transforms, size)
        unused, no_target = sample_rng(0, 0, 0), Target.of([], [])
        placed, canvases = np.zeros_like(self.boxes), np.zeros_like(self.boxes[:, :2])
        for number, image in enumerate(self.sizes):
            members = self.images == number
            view = pipeline.transform_geometry(image, no_target, unused).view
            canvases[members] = view.width, view.height
            placed[members] = clip(view.boxes(self.boxes[members]), view.width, view.height)
        return placed, canvases

    def adapt(self, config: AnyDetector, transforms: TransformsConfig) -> tuple[AnyDetector, str]:
        """Return the settings with `auto` adapted to these objects, and a sentence about it."""
        boxes, canvases = self.on_input(transforms, config.size)
        return config.adapted(torch.from_numpy(boxes / np.tile(canvases, 2)))


def counted_objects(
    objects: Target, counts: Sequence[int] | Ints, sizes: npt.ArrayLike
) -> tuple[Ints, Objects]:
    """Return the objects that count in an evaluation, and their numbers among all `objects`: difficult ones
    and crowds do not count. Each of n images has `counts` (n,) of them, and `sizes` (n, 2), width and height.
    """
    unique, image_sizes = np.unique(
        np.asarray(sizes, dtype=np.int64).reshape(-1, 2), axis=0, return_inverse=True
    )
    numbers = np.flatnonzero(~(objects.difficult | objects.crowd))
    images = np.repeat(image_sizes.reshape(-1), counts)
    distinct = tuple((width, height) for width, height in unique.tolist())
    return numbers, Objects(boxes=objects.boxes, images=images, sizes=distinct).select(numbers)
