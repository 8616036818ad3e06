"""Which class was found where which class is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.core.boxes import iou
from boxcrew.core.types import Bools, Floats, Ints, Target
from boxcrew.evaluate.detection.matches import MATCH_IOU, crowded
from boxcrew.evaluate.detection.metric import EvaluatedImage


def confusion_matrix(evaluated: Sequence[EvaluatedImage], *, num_classes: int, threshold: float) -> Ints:
    """(C+1, C+1) counts: rows the truth, columns the found; the last of each is background.

    Of each image, the detections with at least the score `threshold` and the objects are paired one to
    one, whatever their classes, the greatest IoU first and none below 0.5. An object left over was found
    as background; a detection left over was background. Difficult objects and crowds are not counted, nor
    are detections left over that lie on one.
    """
    matrix = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    for one in evaluated:
        keep = one.detections.scores.numpy() >= threshold
        boxes, labels = one.detections.boxes.numpy()[keep], one.detections.labels.numpy()[keep]
        ignored = one.target.difficult | one.target.crowd
        objects = one.target.select(~ignored)
        truth, found = _pair(boxes, labels, objects)
        np.add.at(matrix, (objects.labels[truth], labels[found]), 1)
        matrix[:-1, -1] += np.bincount(np.delete(objects.labels, truth), minlength=num_classes)
        spare = np.delete(np.arange(len(labels)), found)
        spare = spare[~_on_ignored(boxes[spare], one.target.select(ignored))]
        matrix[-1, :-1] += np.bincount(labels[spare], minlength=num_classes)
    return matrix


def _pair(boxes: Floats, labels: Ints, objects: Target) -> tuple[list[int], list[int]]:
    """Places of paired objects and of their detections."""
    shared = iou(objects.boxes, boxes)
    rows, columns = np.nonzero(shared >= MATCH_IOU)
    agree = objects.labels[rows] == labels[columns]
    # Boxes of one anchor under two classes have the same IoU: then the one with the right class is paired.
    order = np.lexsort((columns, ~agree, -shared[rows, columns]))
    truth: list[int] = []
    found: list[int] = []
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if row not in truth and column not in found:
            truth.append(row)
            found.append(column)
    return truth, found


def _on_ignored(boxes: Floats, ignored: Target) -> Bools:
    """(N,) whether each box lies on an object that is not counted, of any class."""
    on_difficult = iou(boxes, ignored.boxes) >= MATCH_IOU
    on_crowd = crowded(boxes, ignored.boxes)
    lies_on: Bools = (on_crowd & ignored.crowd) | (on_difficult & ~ignored.crowd)
    result: Bools = np.any(lies_on, axis=1)
    return result
