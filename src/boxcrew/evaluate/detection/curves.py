"""Precision and recall of a class along its detections, and on the grids that are stored and drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boxcrew.evaluate.detection.matches import ClassMatches
from boxcrew.evaluate.detection.metric import Curves, f1, mean_defined

GRID = np.arange(101) / 100
"""The recalls, and the score thresholds, at which curves are kept."""

_DEFAULT_THRESHOLD = 0.5
_DIGITS = 5  # more would only make the file longer

_Array = npt.NDArray[np.float64]


def running(class_matches: ClassMatches) -> tuple[_Array, _Array]:
    """Precision and recall (D,) after each detection, best first; for a class that has objects."""
    right = np.cumsum(class_matches.right)
    return right / np.arange(1, len(right) + 1), right / class_matches.num_objects


def precision_at_recall(class_matches: ClassMatches, recalls: _Array) -> _Array:
    """The best precision at each recall or a higher one; 0 at recalls that are not reached."""
    precision, recall = running(class_matches)
    best = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return best[np.searchsorted(recall, recalls, side="left")]


def curves(class_matches: Sequence[ClassMatches]) -> Curves:
    """Of every class on the grid."""
    by_recall = [precision_at_recall(one, GRID) if one.num_objects else None for one in class_matches]
    by_score = [_at_thresholds(one) if one.num_objects else None for one in class_matches]
    return Curves(
        precision=tuple(None if curve is None else _rounded(curve) for curve in by_recall),
        precision_at=tuple(None if pair is None else _rounded(pair[0]) for pair in by_score),
        recall_at=tuple(None if pair is None else _rounded(pair[1]) for pair in by_score),
    )


def best_threshold(found: Curves) -> float:
    """The score threshold of the grid with the best mean F1 over classes; 0.5 where none finds anything."""
    defined = [curve for curve in found.f1_at() if curve is not None]
    mean = np.mean(defined, axis=0) if defined else np.zeros(len(GRID))
    return float(GRID[mean.argmax()]) if mean.max() > 0 else _DEFAULT_THRESHOLD


def at_threshold(found: Curves, threshold: float) -> list[tuple[float, float, float] | None]:
    """Precision, recall and F1 of each class at a threshold of the grid."""
    place = round(threshold * 100)
    pairs = zip(found.precision_at, found.recall_at, strict=True)
    return [
        None if p is None or r is None else (p[place], r[place], f1(p[place], r[place])) for p, r in pairs
    ]


def mean_curve(every: Sequence[tuple[float, ...] | None]) -> tuple[float, ...]:
    """Over the classes that have one; empty where none has."""
    defined = [curve for curve in every if curve is not None]
    return tuple(mean_defined(values) for values in zip(*defined, strict=True))


def _at_thresholds(class_matches: ClassMatches) -> tuple[_Array, _Array]:
    num_found = np.searchsorted(-class_matches.scores.astype(np.float64), -GRID, side="right")
    num_right = np.append(0, np.cumsum(class_matches.right))[num_found]
    precision = np.divide(num_right, num_found, out=np.zeros(len(GRID)), where=num_found > 0)
    return precision, num_right / class_matches.num_objects


def _rounded(values: _Array) -> tuple[float, ...]:
    return tuple(values.round(_DIGITS).tolist())
