"""Draws images with their boxes: training samples, and labels beside predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.core.types import Batch, Image
from boxcrew.data.detection.source import Record, Source
from boxcrew.data.images.drawing import draw_boxes
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.tasks.data import ImageSheets

SHOWN_SCORE = 0.3  # predictions below would only clutter an image


def draw_batch(source: Source, records: Sequence[Record], batch: Batch, num: int) -> ImageSheets:
    """Draw the first samples of a batch before and after augmentation."""
    by_key = {record.key: record for record in records}
    count = min(num, len(batch))
    before = [_draw_record(source, by_key[key]) for key in batch.keys[:count]]
    after = [_draw_input(source, batch, index) for index in range(count)]
    return {"train/before_augmentation": before, "train/after_augmentation": after}


def draw_predictions(
    source: Source, records: Sequence[Record], images: Sequence[EvaluatedImage]
) -> ImageSheets:
    by_key = {record.key: record for record in records}
    labels, predictions = [], []
    for image in images:
        pixels, target, detections = source.read(by_key[image.key]), image.target, image.detections
        labels.append(draw_boxes(pixels, target.boxes, target.labels, source.classes))
        keep = detections.scores >= SHOWN_SCORE
        boxes, classes = detections.boxes[keep].numpy(), detections.labels[keep].numpy()
        scores = detections.scores[keep].numpy()
        predictions.append(draw_boxes(pixels, boxes, classes, source.classes, scores))
    return {"val/labels": labels, "val/predictions": predictions}


def _draw_record(source: Source, record: Record) -> Image:
    return draw_boxes(source.read(record), record.target.boxes, record.target.labels, source.classes)


def _draw_input(source: Source, batch: Batch, index: int) -> Image:
    real = batch.targets["labels"][index] >= 0  # others are padding
    image = np.ascontiguousarray(batch.inputs[index].permute(1, 2, 0).numpy())
    boxes, labels = batch.targets["boxes"][index][real], batch.targets["labels"][index][real]
    return draw_boxes(image, boxes.numpy(), labels.numpy(), source.classes)
