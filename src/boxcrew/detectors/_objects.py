"""The objects of a data set as a detector meets them: where they lie on its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from boxcrew.core.types import Floats, Ints, Target
from boxcrew.data.loading.order import sample_rng
from boxcrew.data.transforms.geometry import Scene
from boxcrew.data.transforms.pipeline import TransformsConfig, eval_pipeline
from boxcrew.data.transforms.view import View
from boxcrew.detectors._base import DetectorConfig

AnyDetector = TypeVar("AnyDetector", bound=DetectorConfig)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objects:
    """Boxes with the sizes of their images."""

    boxes: Floats  # (N, 4) pixels of the originals
    images: Ints  # (N,) which size of an image, of those in `sizes`
    sizes: tuple[tuple[int, int], ...]  # (width, height), each once

    def select(self, keep: Ints) -> Objects:
        return Objects(boxes=self.boxes[keep], images=self.images[keep], sizes=self.sizes)

    def on_input(self, transforms: TransformsConfig, size: int) -> Floats:
        """(N, 4) pixels of the input, as an evaluation makes it."""
        (resize,) = eval_pipeline(transforms, size, size).geometry
        unused, nothing = sample_rng(0, 0, 0), Target.of([], [])
        placed = np.zeros_like(self.boxes)
        for number, (width, height) in enumerate(self.sizes):
            mine = self.images == number
            view = resize(Scene(view=View.identity(width, height), target=nothing), unused).view
            placed[mine] = view.boxes(self.boxes[mine])
        return placed.clip(0, size)

    def fit(self, config: AnyDetector, transforms: TransformsConfig) -> tuple[AnyDetector, str]:
        """The settings with what is `auto` settled for these objects, and a sentence about it."""
        shares = torch.from_numpy(self.on_input(transforms, config.size)) / config.size
        return config.fitted(shares)


def counted_objects(targets: Sequence[Target], sizes: Sequence[tuple[int, int]]) -> tuple[Ints, Objects]:
    """The objects that count in an evaluation, neither difficult nor a crowd, and their numbers among all."""
    unique = tuple(dict.fromkeys(sizes))
    places = {size: number for number, size in enumerate(unique)}
    images = [
        np.full(len(target), places[size], dtype=np.int64)
        for target, size in zip(targets, sizes, strict=True)
    ]
    counts = [~(target.difficult | target.crowd) for target in targets]
    numbers = np.flatnonzero(np.concatenate([*counts, np.zeros(0, dtype=np.bool_)]))
    boxes = np.concatenate([*(target.boxes for target in targets), np.zeros((0, 4), dtype=np.float32)])
    every = Objects(boxes=boxes, images=np.concatenate([*images, np.zeros(0, dtype=np.int64)]), sizes=unique)
    return numbers, every.select(numbers)
