"""The steps before and after a network that finds boxes, whatever computes it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core import boxes as box_math
from boxcrew.core.input_size import Extent
from boxcrew.core.types import Detections, Floats, Image, Target
from boxcrew.data.images.source_image import SourceImage
from boxcrew.data.loading.extra_inputs import pad_extra, region_inputs
from boxcrew.data.loading.order import sample_rng
from boxcrew.data.transforms.pipeline import Pipeline
from boxcrew.data.transforms.view import View

Array = npt.NDArray[Any]

_UNUSED = sample_rng(0, 0, 0)  # an evaluation pipeline is not random


@dataclass(frozen=True, kw_only=True)
class PredictSeconds:
    """The time of each stage of prediction, summed over images."""

    pre: float = 0.0  # decoding, unless that was done before, and resizing
    proposals: float = 0.0  # of a detector that takes regions
    network: float = 0.0
    post: float = 0.0  # decoding, suppression
    num_images: int = 0

    def __add__(self, other: PredictSeconds) -> PredictSeconds:
        return PredictSeconds(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def milliseconds(self) -> dict[str, float]:
        """Return the mean of each stage for one image; that of proposals only if there are any."""
        names = ("pre", "proposals", "network", "post") if self.proposals else ("pre", "network", "post")
        return {name: 1000 * getattr(self, name) / max(1, self.num_images) for name in names}


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedImage:
    """An image as a detector sees it."""

    pixels: Image  # the input of the network
    view: View  # brings detections back to pixels of the original
    extent: Extent  # (width, height) of the original
    regions: Floats | None  # (N, 4) in pixels of the original, for a detector that takes them
    seconds: PredictSeconds  # that it took

    def extra(self) -> dict[str, Array]:
        """Return the further inputs of the network, by name."""
        return {} if self.regions is None else region_inputs(self.regions, self.view)


@dataclass(frozen=True, kw_only=True, eq=False)
class DetectionPredictor(ABC):
    """A detector with what comes before and after it. `propose` finds the regions (N, 4) of an image, for a
    detector that takes them.
    """

    pipeline: Pipeline
    propose: Callable[[Image], Floats] | None = None

    @abstractmethod
    def compute(self, inputs: Sequence[Array]) -> tuple[list[Detections], PredictSeconds]:
        """Detect objects in images uint8 (B, 3, H, W), which the extra inputs follow. Boxes are in pixels of
        the input.
        """

    def __call__(self, images: Sequence[PreparedImage]) -> tuple[list[Detections], PredictSeconds]:
        """Detect objects in images whose inputs may have different sizes."""
        numbers: dict[Extent, list[int]] = {}  # of the images whose inputs have the same size
        for number, image in enumerate(images):
            numbers.setdefault((image.view.width, image.view.height), []).append(number)
        detections: dict[int, Detections] = {}
        total = PredictSeconds()
        for group in numbers.values():
            results, seconds = self._detect_group([images[number] for number in group])
            detections |= zip(group, results, strict=True)
            total += seconds
        return [detections[number] for number in range(len(images))], total

    def _detect_group(self, images: Sequence[PreparedImage]) -> tuple[list[Detections], PredictSeconds]:
        # Channels come first for networks, and stay last in memory: nothing is moved twice.
        pixels = np.stack([image.pixels for image in images]).transpose(0, 3, 1, 2)
        extra = pad_extra([image.extra() for image in images])
        views, sizes = [image.view for image in images], [image.extent for image in images]
        detections, seconds = self.detect((pixels, *extra.values()), views, sizes)
        return detections, sum((image.seconds for image in images), start=seconds)

    def prepare(self, image: SourceImage) -> PreparedImage:
        """Return an image as the detector sees it: decoded no larger than the input needs, as an evaluation
        does it. `DataError` if it cannot be decoded.
        """
        start = time.perf_counter()
        regions = None if self.propose is None else self.propose(image.read())
        proposed = time.perf_counter()

        def read(reduction: int) -> Image:
            return image.read(reduction=reduction)

        nothing = Target.of([], [])
        pixels, scene = self.pipeline.make_input(image.extent, nothing, read, _UNUSED, name=image.name)
        pre = time.perf_counter() - proposed
        return PreparedImage(
            pixels=pixels,
            view=scene.view,
            extent=image.extent,
            regions=regions,
            seconds=PredictSeconds(pre=pre, proposals=0.0 if regions is None else proposed - start),
        )

    def detect(
        self, inputs: Sequence[Array], views: Sequence[View], sizes: Sequence[Extent]
    ) -> tuple[list[Detections], PredictSeconds]:
        """Detect objects in inputs made by the pipeline: the images, then the extra inputs. Boxes are clipped
        to `sizes`, the (width, height) of each original image.
        """
        found, seconds = self.compute(inputs)
        return [_restore(*triple) for triple in zip(found, views, sizes, strict=True)], seconds


def _restore(detections: Detections, view: View, size: Extent) -> Detections:
    """Return detections in pixels of the original, in memory of their own."""
    return Detections(
        boxes=box_math.clip(view.inverse_boxes(detections.boxes), *size),
        scores=detections.scores.copy(),
        labels=detections.labels.copy(),
    )
