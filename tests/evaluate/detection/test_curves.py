"""Curves on the grid, and the threshold that is chosen from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boxcrew.core.types import Target
from boxcrew.evaluate.detection.curves import GRID, at_threshold, best_threshold, curves, mean_curve
from boxcrew.evaluate.detection.matches import class_matches
from boxcrew.evaluate.detection.types import EvaluatedImage

HERE, THERE, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [200, 200, 230, 230]


def test_by_hand(judge: Any) -> None:
    detections = [(0, 0.75, HERE), (0, 0.5, FAR)]
    matches, none = class_matches([judge(Target.of([HERE, THERE], [0, 0]), detections)], num_classes=2)
    drawn = curves([matches, none])
    assert drawn.precision[0] == (1.0,) * 51 + (0.0,) * 50
    assert drawn.recall_at[0] == (0.5,) * 76 + (0.0,) * 25
    assert drawn.precision_at[0] == (0.5,) * 51 + (1.0,) * 25 + (0.0,) * 25
    assert drawn.precision[1] is drawn.recall_at[1] is drawn.f1_at()[1] is None
    assert best_threshold(drawn) == pytest.approx(0.51)
    assert at_threshold(drawn, 0.51) == [(1.0, 0.5, 2 / 3), None]


def test_no_threshold_where_nothing_is_right(judge: Any) -> None:
    target = Target.of([HERE], [0])
    for detections in ([], [(0, 0.9, FAR)]):
        assert best_threshold(curves(class_matches([judge(target, detections)], num_classes=1))) == 0.5
    assert best_threshold(curves(class_matches([], num_classes=1))) == 0.5


def test_the_threshold_is_the_best_of_the_grid(fashion: list[EvaluatedImage]) -> None:
    decided = class_matches(fashion, num_classes=8)
    drawn = curves(decided)
    chosen = best_threshold(drawn)

    def mean_f1(threshold: float) -> float:
        values = []
        for matches in decided:
            right, detected = (
                matches.true_positive[matches.scores >= threshold].sum(),
                (matches.scores >= threshold).sum(),
            )
            values.append(2 * right / (detected + matches.num_objects))
        return float(np.mean(values))

    assert mean_f1(chosen) == pytest.approx(max(mean_f1(threshold) for threshold in GRID), abs=1e-4)
    mean = mean_curve(drawn.f1_at())
    assert mean[round(chosen * 100)] == max(mean)
    assert mean[round(chosen * 100)] == pytest.approx(mean_f1(chosen), abs=1e-4)


def test_precision_falls_along_recall_and_recall_along_the_threshold(fashion: list[EvaluatedImage]) -> None:
    drawn = curves(class_matches(fashion, num_classes=8))
    for curve in (*drawn.precision, *drawn.recall_at):
        assert curve is not None
        assert len(curve) == 101
        assert (np.diff(curve) <= 0).all()
