"""COCO's numbers equal those of pycocotools."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from boxcrew.core.types import Target
from boxcrew.evaluate.detection.coco import COCO_NAMES, coco_scores
from boxcrew.evaluate.detection.types import EvaluatedImage


@pytest.fixture(scope="module")
def reference(fashion: list[EvaluatedImage], fashion_truth: dict[str, Any]) -> Any:
    """An evaluation by pycocotools, from the set's own JSON."""
    ids = {image["file_name"]: image["id"] for image in fashion_truth["images"]}
    results = []
    for evaluated in fashion:
        boxes = evaluated.detections.boxes.astype(np.float64)
        for box, score, label in zip(
            boxes, evaluated.detections.scores.tolist(), evaluated.detections.labels.tolist(), strict=True
        ):
            x, y, right, bottom = box.tolist()
            result = {"image_id": ids[evaluated.key], "category_id": label + 1, "score": score}
            results.append(result | {"bbox": [x, y, right - x, bottom - y]})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = copy.deepcopy(fashion_truth)
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def test_the_twelve_numbers_equal_pycocotools(fashion: list[EvaluatedImage], reference: Any) -> None:
    scores = coco_scores(fashion, num_classes=8)
    expected = dict(zip(COCO_NAMES, reference.stats.tolist(), strict=True))
    assert scores.numbers == pytest.approx(expected, abs=1e-6)
    assert 0.1 < scores.numbers["AP"] < 0.9  # the detections are neither perfect nor useless


def test_the_classes_equal_pycocotools(fashion: list[EvaluatedImage], reference: Any) -> None:
    scores = coco_scores(fashion, num_classes=8)
    precision = reference.eval["precision"][..., 0, 2]
    np.testing.assert_allclose(np.array(scores.AP), precision.mean(axis=(0, 1)), atol=1e-6)
    np.testing.assert_allclose(np.array(scores.AP50), precision[0].mean(axis=0), atol=1e-6)


def test_nothing_is_printed(fashion: list[EvaluatedImage], capfd: pytest.CaptureFixture[str]) -> None:
    coco_scores(fashion[:5], num_classes=8)
    assert capfd.readouterr() == ("", "")


def test_no_detections_at_all(judge: Any) -> None:
    scores = coco_scores([judge(Target.of([[0, 0, 40, 40]], [1]), [])], num_classes=3)
    assert scores.numbers["AP"] == scores.numbers["AR100"] == 0
    assert scores.numbers["APs"] == -1
    assert scores.AP == (None, 0, None)


def test_no_objects_at_all(judge: Any) -> None:
    empty = Target.of([], [])
    for evaluated in ([judge(empty, [(0, 0.9, [0, 0, 9, 9])])], [judge(empty, [])], []):
        scores = coco_scores(evaluated, num_classes=2)
        assert set(scores.numbers.values()) == {-1}
        assert scores.AP50 == (None, None)


def test_difficult_objects_count_as_any_other(judge: Any) -> None:
    target = Target.of([[0, 0, 40, 40], [100, 100, 150, 150]], [0, 0], difficult=[False, True])
    detections = [(0, 0.9, [0, 0, 40, 40])]
    assert coco_scores([judge(target, detections)], num_classes=1).numbers["AP50"] == pytest.approx(51 / 101)
