"""Measures the detections of one split: computes the whole `DetectionReport`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.core.types import Ints
from boxcrew.evaluate.detection.coco import CocoScores, coco_scores
from boxcrew.evaluate.detection.confusion import confusion_matrix
from boxcrew.evaluate.detection.curves import at_threshold, best_threshold, curves, voc07_ap, voc12_ap
from boxcrew.evaluate.detection.matches import ClassMatches, class_matches
from boxcrew.evaluate.detection.metric import (
    ClassScore,
    Curves,
    DetectionReport,
    EvaluatedImage,
    mean_defined,
)


def evaluate_detections(images: Sequence[EvaluatedImage], classes: Sequence[str]) -> DetectionReport:
    """Return the numbers of COCO and VOC, curves and the confusion matrix, overall and for each class.

    Labels of objects and detections are indices of `classes`. `coco_scores`, `class_matches` and
    `confusion_matrix` document how they treat `difficult` and `crowd`.
    """
    coco = coco_scores(images, num_classes=len(classes))
    matches = class_matches(images, num_classes=len(classes))
    class_curves = curves(matches)
    threshold = best_threshold(class_curves)
    scores = _class_scores(images, classes, coco, matches, at_threshold(class_curves, threshold))
    matrix = confusion_matrix(images, num_classes=len(classes), threshold=threshold)
    return DetectionReport(
        numbers=dict(coco.numbers) | _means(scores, class_curves) | {"threshold": threshold},
        classes=tuple(scores),
        confusion=tuple(tuple(row) for row in matrix.tolist()),
        curves=class_curves,
    )


def _class_scores(
    images: Sequence[EvaluatedImage],
    classes: Sequence[str],
    coco: CocoScores,
    matches: Sequence[ClassMatches],
    rates: Sequence[tuple[float, float, float] | None],
) -> list[ClassScore]:
    num_objects, num_images = _counts(images, len(classes))
    scores = []
    for label, name in enumerate(classes):
        precision, recall, f1 = rates[label] or (0.0, 0.0, 0.0)
        score = ClassScore(
            name=name,
            num_objects=int(num_objects[label]),
            num_images=int(num_images[label]),
            AP=coco.AP[label],
            AP50=coco.AP50[label],
            AP50_voc07=voc07_ap(matches[label]),
            AP50_voc12=voc12_ap(matches[label]),
            precision=precision,
            recall=recall,
            F1=f1,
        )
        scores.append(score)
    return scores


def _counts(images: Sequence[EvaluatedImage], num_classes: int) -> tuple[Ints, Ints]:
    """Return for each class the number of its objects, without crowds, and of images that have one."""
    num_objects = np.zeros(num_classes, dtype=np.int64)
    num_images = np.zeros(num_classes, dtype=np.int64)
    for image in images:
        counts = np.bincount(image.target.labels[~image.target.crowd], minlength=num_classes)
        num_objects += counts
        num_images += counts > 0
    return num_objects, num_images


def _means(scores: Sequence[ClassScore], class_curves: Curves) -> dict[str, float]:
    """Return the means over the classes that have objects."""
    pairs = zip(scores, class_curves.precision_at, strict=True)
    counted = [score for score, curve in pairs if curve is not None]
    columns = [("AP50_voc07", scores), ("AP50_voc12", scores)]
    columns += [(name, counted) for name in ("precision", "recall", "F1")]
    return {name: mean_defined([getattr(score, name) for score in rows]) for name, rows in columns}
