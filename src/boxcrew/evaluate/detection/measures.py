"""Measures a detector: everything that is said about its detections on one split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.core.types import Ints
from boxcrew.evaluate.detection.coco import CocoScores, coco_scores
from boxcrew.evaluate.detection.confusion import confusion_matrix
from boxcrew.evaluate.detection.curves import at_threshold, best_threshold, curves
from boxcrew.evaluate.detection.matches import ClassMatches, class_matches
from boxcrew.evaluate.detection.metric import (
    ClassScore,
    Curves,
    DetectionReport,
    EvaluatedImage,
    mean_defined,
)
from boxcrew.evaluate.detection.voc import voc07_ap, voc12_ap


def evaluate_detections(evaluated: Sequence[EvaluatedImage], classes: Sequence[str]) -> DetectionReport:
    """The 12 numbers of COCO, both APs of VOC, curves, confusion matrix and all of it for each class.

    Labels of objects and detections are places in `classes`. How `difficult` and `crowd` are treated is
    said in `coco_scores`, `class_matches` and `confusion_matrix`.
    """
    coco = coco_scores(evaluated, num_classes=len(classes))
    decided = class_matches(evaluated, num_classes=len(classes))
    found = curves(decided)
    threshold = best_threshold(found)
    scores = _class_scores(evaluated, classes, coco, decided, at_threshold(found, threshold))
    matrix = confusion_matrix(evaluated, num_classes=len(classes), threshold=threshold)
    return DetectionReport(
        numbers=dict(coco.numbers) | _means(scores, found) | {"threshold": threshold},
        classes=tuple(scores),
        confusion=tuple(tuple(row) for row in matrix.tolist()),
        curves=found,
    )


def _class_scores(
    evaluated: Sequence[EvaluatedImage],
    classes: Sequence[str],
    coco: CocoScores,
    decided: Sequence[ClassMatches],
    chosen: Sequence[tuple[float, float, float] | None],
) -> list[ClassScore]:
    num_objects, num_images = _counts(evaluated, len(classes))
    scores = []
    for label, name in enumerate(classes):
        precision, recall, f1 = chosen[label] or (0.0, 0.0, 0.0)
        score = ClassScore(
            name=name,
            num_objects=int(num_objects[label]),
            num_images=int(num_images[label]),
            AP=coco.AP[label],
            AP50=coco.AP50[label],
            AP50_voc07=voc07_ap(decided[label]),
            AP50_voc12=voc12_ap(decided[label]),
            precision=precision,
            recall=recall,
            F1=f1,
        )
        scores.append(score)
    return scores


def _counts(evaluated: Sequence[EvaluatedImage], num_classes: int) -> tuple[Ints, Ints]:
    """For each class, its objects without crowds, and the images that have some."""
    num_objects = np.zeros(num_classes, dtype=np.int64)
    num_images = np.zeros(num_classes, dtype=np.int64)
    for one in evaluated:
        here = np.bincount(one.target.labels[~one.target.crowd], minlength=num_classes)
        num_objects += here
        num_images += here > 0
    return num_objects, num_images


def _means(scores: Sequence[ClassScore], found: Curves) -> dict[str, float]:
    """Over the classes that have objects."""
    counted = [score for score, curve in zip(scores, found.precision_at, strict=True) if curve is not None]
    return {
        "AP50_voc07": mean_defined([score.AP50_voc07 for score in scores]),
        "AP50_voc12": mean_defined([score.AP50_voc12 for score in scores]),
        "precision": mean_defined([score.precision for score in counted]),
        "recall": mean_defined([score.recall for score in counted]),
        "F1": mean_defined([score.F1 for score in counted]),
    }
