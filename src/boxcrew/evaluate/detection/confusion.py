"""The confusion matrix of a detector: which class it predicts for objects of each class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.core.boxes import iou
from boxcrew.core.types import Bools, Floats, Ints, Target
from boxcrew.evaluate.detection.matches import MATCH_IOU, crowded
from boxcrew.evaluate.detection.types import EvaluatedImage


def confusion_matrix(images: Sequence[EvaluatedImage], *, num_classes: int, threshold: float) -> Ints:
    """Return counts (C+1, C+1): rows are true classes, columns predicted ones; the last is background.

    In each image, objects and the detections whose score is at least `threshold` are paired one to one,
    whatever their classes, the greatest IoU first and none below 0.5. An unpaired object counts as predicted
    background, an unpaired detection as true background. Difficult objects and crowds are not counted, nor
    are unpaired detections that lie on one.
    """
    matrix = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    for image in images:
        target, detections = image.target, image.detections
        keep = detections.scores >= threshold
        boxes, labels = detections.boxes[keep], detections.labels[keep]
        ignored = target.difficult | target.crowd
        objects = target.select(~ignored)
        truth, paired = _pair(boxes, labels, objects)
        np.add.at(matrix, (objects.labels[truth], labels[paired]), 1)
        matrix[:-1, -1] += np.bincount(np.delete(objects.labels, truth), minlength=num_classes)
        unpaired = np.delete(np.arange(len(labels)), paired)
        unpaired = unpaired[~_on_ignored(boxes[unpaired], target.select(ignored))]
        matrix[-1, :-1] += np.bincount(labels[unpaired], minlength=num_classes)
    return matrix


def _pair(boxes: Floats, labels: Ints, objects: Target) -> tuple[list[int], list[int]]:
    """Return the indices of paired objects and of their detections."""
    overlaps = iou(objects.boxes, boxes)
    rows, columns = np.nonzero(overlaps >= MATCH_IOU)
    agree = objects.labels[rows] == labels[columns]
    # Boxes of one anchor under two classes have the same IoU: the one with the right class is paired first.
    order = np.lexsort((columns, ~agree, -overlaps[rows, columns]))
    truth: list[int] = []
    paired: list[int] = []
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if row not in truth and column not in paired:
            truth.append(row)
            paired.append(column)
    return truth, paired


def _on_ignored(boxes: Floats, ignored: Target) -> Bools:
    """Return (N,) whether each box lies on an object that is not counted, of any class."""
    on_difficult = iou(boxes, ignored.boxes) >= MATCH_IOU
    on_crowd = crowded(boxes, ignored.boxes)
    result: Bools = np.any((on_crowd & ignored.crowd) | (on_difficult & ~ignored.crowd), axis=1)
    return result
