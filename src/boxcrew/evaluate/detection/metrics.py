"""Computes all metrics of the detections of one split, the `DetectionReport`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boxcrew.evaluate.detection.coco import coco_scores
from boxcrew.evaluate.detection.confusion import confusion_matrix
from boxcrew.evaluate.detection.curves import at_threshold, best_threshold, curves, voc07_ap, voc12_ap
from boxcrew.evaluate.detection.matches import class_matches
from boxcrew.evaluate.detection.types import ClassScore, DetectionReport, EvaluatedImage
from boxcrew.evaluate.evaluation import mean_defined


def evaluate_detections(images: Sequence[EvaluatedImage], classes: Sequence[str]) -> DetectionReport:
    """Return the numbers of COCO and VOC, curves and the confusion matrix, overall and for each class.

    Labels of objects and detections are indices of `classes`. `coco_scores`, `class_matches` and
    `confusion_matrix` document how they treat `difficult` and `crowd`.
    """
    num_classes = len(classes)
    coco = coco_scores(images, num_classes=num_classes)
    matches = class_matches(images, num_classes=num_classes)
    class_curves = curves(matches)
    threshold = best_threshold(class_curves)
    rates = at_threshold(class_curves, threshold)
    targets = [image.target for image in images]
    counts = [np.bincount(each.labels[~each.crowd], minlength=num_classes) for each in targets]
    by_image = np.stack([np.zeros(num_classes, dtype=np.int64), *counts])
    scores = []
    for label, name in enumerate(classes):
        precision, recall, f1 = rates[label] or (0.0, 0.0, 0.0)
        score = ClassScore(
            name=name,
            num_objects=int(by_image[:, label].sum()),
            num_images=int(np.count_nonzero(by_image[:, label])),
            AP=coco.AP[label],
            AP50=coco.AP50[label],
            AP50_voc07=voc07_ap(matches[label]),
            AP50_voc12=voc12_ap(matches[label]),
            precision=precision,
            recall=recall,
            F1=f1,
        )
        scores.append(score)
    matrix = confusion_matrix(images, num_classes=num_classes, threshold=threshold)
    counted = [score for score, rate in zip(scores, rates, strict=True) if rate is not None]
    rows = {
        "AP50_voc07": scores,
        "AP50_voc12": scores,
        "precision": counted,
        "recall": counted,
        "F1": counted,
    }
    means = {name: mean_defined([getattr(score, name) for score in chosen]) for name, chosen in rows.items()}
    return DetectionReport(
        numbers=dict(coco.numbers) | means | {"threshold": threshold},
        classes=tuple(scores),
        confusion=tuple(map(tuple, matrix.tolist())),
        curves=class_curves,
    )
