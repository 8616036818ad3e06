"""Photos with their boxes: as they are learnt from, and as they were found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.core.types import Batch, Image
from boxcrew.data.detection.source import Record, Source
from boxcrew.data.images.drawing import draw_boxes
from boxcrew.evaluate.detection.metric import EvaluatedImage
from boxcrew.tasks.data import ImageSheets

SHOWN_SCORE = 0.3  # predictions below would only clutter a picture


def draw_batch(source: Source, records: Sequence[Record], batch: Batch, num: int) -> ImageSheets:
    """The first of a batch before and after augmentation."""
    by_key = {record.key: record for record in records}
    count = min(num, len(batch))
    before = [_draw_record(source, by_key[key]) for key in batch.keys[:count]]
    after = [_draw_input(source, batch, place) for place in range(count)]
    return {"train/before_augmentation": before, "train/after_augmentation": after}


def draw_detections(
    source: Source, records: Sequence[Record], evaluated: Sequence[EvaluatedImage]
) -> ImageSheets:
    by_key = {record.key: record for record in records}
    labels, found = [], []
    for one in evaluated:
        image = source.read(by_key[one.key])
        labels.append(draw_boxes(image, one.target.boxes, one.target.labels, source.classes))
        keep = one.detections.scores >= SHOWN_SCORE
        seen = [
            tensor[keep].numpy()
            for tensor in (one.detections.boxes, one.detections.labels, one.detections.scores)
        ]
        found.append(draw_boxes(image, seen[0], seen[1], source.classes, seen[2]))
    return {"val/labels": labels, "val/predictions": found}


def _draw_record(source: Source, record: Record) -> Image:
    return draw_boxes(source.read(record), record.target.boxes, record.target.labels, source.classes)


def _draw_input(source: Source, batch: Batch, place: int) -> Image:
    known = batch.targets["labels"][place] >= 0
    image = np.ascontiguousarray(batch.inputs[place].permute(1, 2, 0).numpy())
    boxes, labels = batch.targets["boxes"][place][known], batch.targets["labels"][place][known]
    return draw_boxes(image, boxes.numpy(), labels.numpy(), source.classes)
