"""The path from images to boxes in their own pixels, shared by evaluation, prediction and service."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boxcrew.core import boxes as box_math
from boxcrew.core.input_size import Extent
from boxcrew.core.types import Detections, Floats, Image, Target
from boxcrew.data.loading.collate import stack_extra, stack_images
from boxcrew.data.loading.detection_samples import region_inputs
from boxcrew.data.loading.order import sample_rng
from boxcrew.data.transforms.pipeline import Pipeline
from boxcrew.data.transforms.view import View
from boxcrew.detectors import DetectorNet, input_hw


@dataclass(frozen=True, kw_only=True)
class PredictSeconds:
    """The time of each stage of prediction, summed over images."""

    pre: float = 0.0  # resizing
    network: float = 0.0
    post: float = 0.0  # decoding, suppression
    num_images: int = 0

    def __add__(self, other: PredictSeconds) -> PredictSeconds:
        return PredictSeconds(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def milliseconds(self) -> dict[str, float]:
        """Return the mean of each stage for one image."""
        count = max(1, self.num_images)
        return {name: 1000 * getattr(self, name) / count for name in ("pre", "network", "post")}


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """A detector with what comes before and after it. `move` brings inputs to its device."""

    detector: DetectorNet
    pipeline: Pipeline
    move: Callable[[Tensor], Tensor]

    def __call__(
        self, images: Sequence[Image], regions: Sequence[Floats] | None = None
    ) -> tuple[list[Detections], PredictSeconds]:
        """Detect objects in images of any size; `regions` (N, 4) of each, for a detector that takes them."""
        numbers: dict[Extent, list[int]] = {}  # of the images whose inputs have the same size
        for number, image in enumerate(images):
            numbers.setdefault(self.pipeline.canvas_of(_extent(image)), []).append(number)
        detections: dict[int, Detections] = {}
        total = PredictSeconds()
        for group in numbers.values():
            group_regions = None if regions is None else [regions[number] for number in group]
            results, seconds = self._detect_group([images[number] for number in group], group_regions)
            detections |= zip(group, results, strict=True)
            total += seconds
        return [detections[number] for number in range(len(images))], total

    def _detect_group(
        self, images: Sequence[Image], regions: Sequence[Floats] | None
    ) -> tuple[list[Detections], PredictSeconds]:
        begun = time.perf_counter()
        pixels, views = zip(*self.prepare(images), strict=True)
        extra = stack_extra(list(map(region_inputs, regions, views))) if regions is not None else {}
        inputs = (stack_images(pixels), *extra.values())
        pre = time.perf_counter() - begun
        detections, seconds = self.detect(inputs, views, list(map(_extent, images)))
        return detections, seconds + PredictSeconds(pre=pre)

    def prepare(self, images: Sequence[Image]) -> list[tuple[Image, View]]:
        """Return for each image the input of the network, and how it maps back to the image."""
        nothing, unused = Target.of([], []), sample_rng(0, 0, 0)  # an evaluation pipeline is not random
        results = [self.pipeline(image, nothing, unused) for image in images]
        return [(pixels, view) for pixels, _, view in results]

    def detect(
        self, inputs: Sequence[Tensor], views: Sequence[View], sizes: Sequence[Extent]
    ) -> tuple[list[Detections], PredictSeconds]:
        """Detect objects in inputs made by the pipeline: the images, then the extra inputs. The detector must
        be in evaluation mode.

        Boxes are returned on the CPU, clipped to `sizes`, the (width, height) of each original image.
        """
        assert not self.detector.training
        begun = time.perf_counter()
        with torch.inference_mode():
            raw = self.detector(*map(self.move, inputs))
            if raw[0].is_cuda:
                torch.cuda.synchronize()
            computed = time.perf_counter()
            decoded = self.detector.decode(raw, input_hw(inputs[0])).cpu().unpad()
        restored = [_restore(*triple) for triple in zip(decoded, views, sizes, strict=True)]
        ended = time.perf_counter()
        seconds = PredictSeconds(network=computed - begun, post=ended - computed, num_images=len(sizes))
        return restored, seconds


def _extent(image: Image) -> Extent:
    height, width, _ = image.shape
    return width, height


def _restore(detections: Detections, view: View, size: Extent) -> Detections:
    boxes = box_math.clip(view.inverse_boxes(detections.boxes.numpy()), *size)
    return Detections(
        boxes=torch.from_numpy(boxes), scores=detections.scores.clone(), labels=detections.labels.clone()
    )
