"""Precision and recall curves of each class, and its average precision by both definitions of Pascal VOC."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boxcrew.evaluate.detection.matches import ClassMatches
from boxcrew.evaluate.detection.types import Curves
from boxcrew.evaluate.evaluation import f1, mean_defined

GRID = np.arange(101) / 100
"""The recalls, and the score thresholds, at which curves are stored."""

_Array = npt.NDArray[np.float64]


def best_precision(class_matches: ClassMatches) -> tuple[_Array, _Array]:
    """Return the recall (D,) after each detection, and before it the best precision at it or a higher one.

    The class must have objects.
    """
    num_right = np.cumsum(class_matches.true_positive)
    precision = num_right / np.arange(1, len(num_right) + 1)
    return np.maximum.accumulate(precision[::-1])[::-1], num_right / class_matches.num_objects


def precision_at_recall(class_matches: ClassMatches, recalls: _Array) -> _Array:
    """Return the best precision at each recall or a higher one; 0 at recalls that are not reached."""
    best, recall = best_precision(class_matches)
    return np.append(best, 0.0)[np.searchsorted(recall, recalls, side="left")]


def voc07_ap(class_matches: ClassMatches) -> float | None:
    """Return the mean of the best precision at recall 0, 0.1, ... 1 (VOC 2007); None without objects."""
    if not class_matches.num_objects:
        return None
    return float(precision_at_recall(class_matches, np.arange(11) / 10).mean())


def voc12_ap(class_matches: ClassMatches) -> float | None:
    """Return the area under the best precision at each recall or higher (since VOC 2010); None as above."""
    if not class_matches.num_objects:
        return None
    best, recall = best_precision(class_matches)
    return float(np.sum(np.diff(recall, prepend=0.0) * best))


def curves(class_matches: Sequence[ClassMatches]) -> Curves:
    """Return the curves of all classes on the grid, rounded to five digits."""
    columns: list[list[tuple[float, ...] | None]] = [[], [], []]
    for each in class_matches:
        values = (precision_at_recall(each, GRID), *_at_thresholds(each)) if each.num_objects else (None,) * 3
        for column, curve in zip(columns, values, strict=True):
            column.append(None if curve is None else tuple(curve.round(5).tolist()))
    precision, precision_at, recall_at = map(tuple, columns)
    return Curves(precision=precision, precision_at=precision_at, recall_at=recall_at)


def best_threshold(curves: Curves) -> float:
    """Return the score threshold of the grid with the best mean F1 over classes; 0.5 if F1 is 0 at all."""
    defined = [curve for curve in curves.f1_at() if curve is not None]
    mean = np.mean(defined, axis=0) if defined else np.zeros(len(GRID))
    return float(GRID[mean.argmax()]) if mean.max() > 0 else 0.5


def at_threshold(curves: Curves, threshold: float) -> list[tuple[float, float, float] | None]:
    """Return precision, recall and F1 of each class at a threshold of the grid; None without objects."""
    index = round(threshold * 100)
    pairs = zip(curves.precision_at, curves.recall_at, strict=True)
    rates = [None if p is None or r is None else (p[index], r[index]) for p, r in pairs]
    return [None if pair is None else (*pair, f1(*pair)) for pair in rates]


def mean_curve(class_curves: Sequence[tuple[float, ...] | None]) -> tuple[float, ...]:
    """Return the mean over the classes that have a curve; empty if none has."""
    defined = [curve for curve in class_curves if curve is not None]
    return tuple(mean_defined(values) for values in zip(*defined, strict=True))


def _at_thresholds(class_matches: ClassMatches) -> tuple[_Array, _Array]:
    num_found = np.searchsorted(-class_matches.scores.astype(np.float64), -GRID, side="right")
    num_right = np.append(0, np.cumsum(class_matches.true_positive))[num_found]
    precision = np.divide(num_right, num_found, out=np.zeros(len(GRID)), where=num_found > 0)
    return precision, num_right / class_matches.num_objects
