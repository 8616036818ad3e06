"""Runs a detector over the images of a split and measures its detections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from boxcrew.core.units import counted
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import ImageReader, Source
from boxcrew.data.images.source_image import DecodedImage
from boxcrew.data.loading.detection_samples import DetectionSamples, Regions, eval_image_batches
from boxcrew.data.loading.workers import Workers
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import DetectionReport, EvaluatedImage
from boxcrew.evaluate.evaluation import Evaluation, is_measured
from boxcrew.runtime.predictor import DetectionPredictor, PredictSeconds

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

TIMED_IMAGES = 16  # whose resizing is timed
TIMED_PROPOSALS = 4  # images whose proposals are timed: they take a good part of a second each


@dataclass(frozen=True, kw_only=True, eq=False)
class DetectionEvaluation(Evaluation):
    """The evaluation of a detector: all metrics, and the detections of every image."""

    report: DetectionReport
    images: tuple[EvaluatedImage, ...]

    def sentence(self) -> str:
        numbers = self.report.numbers
        if not is_measured(numbers["AP"]):
            return f"no boxes to measure, {counted(len(self.images), 'image')}"
        return (
            f"AP {numbers['AP']:.3f}  AP50 {numbers['AP50']:.3f}  AP75 {numbers['AP75']:.3f}, "
            f"{counted(len(self.images), 'image')}"
        )

    def by_class(self) -> Mapping[str, float]:
        return {f"AP/{score.name}": score.AP for score in self.report.classes if score.AP is not None}

    def show(self, writer: SummaryWriter, step: int) -> None:
        """Write a precision-recall curve over score thresholds for each class that has objects."""
        curves = self.report.curves
        rows = zip(self.report.classes, curves.precision_at, curves.recall_at, strict=True)
        for score, precision, recall in rows:
            if precision is None or recall is None:
                continue
            num_right = np.rint(np.array(recall) * score.num_objects)
            has_some = np.array(precision) > 0
            num_found = np.divide(num_right, precision, out=np.zeros_like(num_right), where=has_some)
            writer.add_pr_curve_raw(
                f"PR/{score.name}",
                true_positive_counts=num_right,
                false_positive_counts=np.rint(np.maximum(num_found - num_right, 0)),
                true_negative_counts=np.zeros_like(num_right),
                false_negative_counts=score.num_objects - num_right,
                precision=np.array(precision),
                recall=np.array(recall),
                global_step=step,
                num_thresholds=len(precision),
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class DetectionEvaluator:
    """Evaluates detectors on fixed records. Unreadable images are skipped, and named in the result."""

    source: Source
    images: ImageReader  # the source, or a cache before it
    records: Sequence[Record]
    batch: int
    workers: Workers
    regions: Regions | None = None  # for a detector that takes them

    def __call__(
        self, predictor: DetectionPredictor, *, progress: Callable[[int], None] | None = None
    ) -> DetectionEvaluation:
        """Evaluate a detector. `progress` is called with the number of images done."""
        start = time.monotonic()
        images: list[EvaluatedImage] = []
        skipped: list[str] = []
        speed = PredictSeconds()
        samples = DetectionSamples(self.images, self.records, predictor.pipeline, self.regions)
        for batch in eval_image_batches(samples, batch=self.batch, workers=self.workers):
            sizes = [record.extent for record in batch.records]
            inputs = [tensor.numpy() for tensor in (batch.inputs, *batch.extra.values())]
            detected, seconds = predictor.detect(inputs, batch.views, sizes)
            images += [
                EvaluatedImage(key=r.key, width=r.width, height=r.height, target=r.target, detections=d)
                for r, d in zip(batch.records, detected, strict=True)
            ]
            skipped += batch.skipped
            speed += seconds
            if progress:
                progress(len(images))
        order = {record.key: number for number, record in enumerate(self.records)}
        images.sort(key=lambda image: order[image.key])  # batches are made by the size of the input
        return DetectionEvaluation(
            report=evaluate_detections(images, self.source.classes),
            images=tuple(images),
            milliseconds=(speed + self._hidden_time(predictor, len(images))).milliseconds(),
            seconds=time.monotonic() - start,
            skipped=tuple(skipped),
        )

    def _hidden_time(self, predictor: DetectionPredictor, num_images: int) -> PredictSeconds:
        """Return the time of resizing and of proposals, measured on a few images and scaled up: loader
        processes and stored proposals hide it.
        """
        records = [record for record in self.records[:TIMED_IMAGES] if _readable(record)]
        if not records:
            return PredictSeconds()
        images = [DecodedImage(self.source.read(record)) for record in records]
        alone = replace(predictor, propose=None)
        pre = sum(alone.prepare(image).seconds.pre for image in images)
        some = images[:TIMED_PROPOSALS] if predictor.propose else []
        proposals = sum(predictor.prepare(image).seconds.proposals for image in some)
        return PredictSeconds(
            pre=pre * num_images / len(images), proposals=proposals * num_images / max(1, len(some))
        )


def _readable(record: Record) -> bool:
    return record.path is None or record.path.is_file()
