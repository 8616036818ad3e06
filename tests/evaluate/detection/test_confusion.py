"""Tests of the confusion matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from boxcrew.core.types import Target
from boxcrew.evaluate.detection.confusion import confusion_matrix
from boxcrew.evaluate.detection.types import EvaluatedImage

HERE, THERE, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [200, 200, 230, 230]


def test_right_mistaken_missed_and_invented(judge: Any) -> None:
    target = Target.of([HERE, THERE, FAR], [0, 0, 1])
    detections = [(0, 0.9, HERE), (1, 0.8, THERE), (1, 0.7, [90, 90, 99, 99]), (1, 0.2, FAR)]
    matrix = confusion_matrix([judge(target, detections)], num_classes=2, threshold=0.5)
    assert matrix.tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 0]]


def test_pairs_are_one_to_one_and_the_greatest_iou_comes_first(judge: Any) -> None:
    target = Target.of([HERE], [0])
    detections = [(1, 0.9, [0, 0, 10, 8]), (0, 0.6, HERE)]
    matrix = confusion_matrix([judge(target, detections)], num_classes=2, threshold=0.5)
    assert matrix.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_of_equal_boxes_the_one_with_the_right_class_is_paired(judge: Any) -> None:
    detections = [(1, 0.9, HERE), (0, 0.6, HERE)]
    matrix = confusion_matrix([judge(Target.of([HERE], [0]), detections)], num_classes=2, threshold=0.5)
    assert matrix.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_difficult_objects_and_crowds_are_left_out(judge: Any) -> None:
    target = Target.of([HERE, FAR], [0, 0], difficult=[True, False], crowd=[False, True])
    detections = [(1, 0.9, HERE), (1, 0.8, [205, 205, 210, 210]), (1, 0.7, THERE)]
    matrix = confusion_matrix([judge(target, detections)], num_classes=2, threshold=0.5)
    assert matrix.tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_every_object_is_counted_once(fashion: list[EvaluatedImage]) -> None:
    matrix = confusion_matrix(fashion, num_classes=8, threshold=0.3)
    counted = [image.target.labels[~(image.target.difficult | image.target.crowd)] for image in fashion]
    assert matrix[:-1].sum(axis=1).tolist() == np.bincount(np.concatenate(counted), minlength=8).tolist()
    assert matrix[-1, -1] == 0
    assert (np.diag(matrix)[:-1] > 0).all()


def test_empty(judge: Any) -> None:
    assert not confusion_matrix([], num_classes=2, threshold=0.5).any()
    assert not confusion_matrix([judge(Target.of([], []), [])], num_classes=2, threshold=0.5).any()
