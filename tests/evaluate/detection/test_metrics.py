"""The whole report, and what must not change it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from boxcrew.core.types import Detections, Target
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import DetectionReport, EvaluatedImage

CLASSES = ("clothes", "dress", "pants", "skirt", "shoes", "bag", "glasses", "hat")
VOC = ("AP50_voc07", "AP50_voc12", "precision", "recall", "F1", "threshold")


@pytest.fixture(scope="module")
def report(fashion: list[EvaluatedImage]) -> DetectionReport:
    return evaluate_detections(fashion, CLASSES)


def changed(
    evaluated: list[EvaluatedImage], scale: float = 1.0, scores: Callable[[Any], Any] = lambda scores: scores
) -> list[EvaluatedImage]:
    return [
        replace(
            image,
            width=int(image.width * scale),
            height=int(image.height * scale),
            target=image.target.with_boxes(image.target.boxes * scale),
            detections=Detections.of(
                boxes=image.detections.boxes * scale,
                scores=scores(image.detections.scores),
                labels=image.detections.labels,
            ),
        )
        for image in evaluated
    ]


def perfect(evaluated: list[EvaluatedImage]) -> list[EvaluatedImage]:
    plain = [Target.of(image.target.boxes, image.target.labels) for image in evaluated]
    return [
        replace(
            image,
            target=target,
            detections=Detections.of(
                boxes=torch.tensor(target.boxes),
                scores=torch.linspace(0.9, 0.5, len(target)),
                labels=torch.tensor(target.labels),
            ),
        )
        for image, target in zip(evaluated, plain, strict=True)
    ]


def test_a_perfect_detector(fashion: list[EvaluatedImage]) -> None:
    report = evaluate_detections(perfect(fashion), CLASSES)
    for name in ("AP", "AP50", "AP75", "AR100", *VOC[:-1]):
        assert report.numbers[name] == pytest.approx(1), name
    for i, (score, row) in enumerate(zip(report.classes, report.confusion, strict=False)):
        assert score.AP == score.AP50 == score.AP50_voc07 == score.F1 == pytest.approx(1)
        assert row[i] == sum(row) == score.num_objects


def test_counts_of_objects_and_images(report: DetectionReport, fashion_truth: dict[str, Any]) -> None:
    for label, score in enumerate(report.classes, start=1):
        mine = [a for a in fashion_truth["annotations"] if a["category_id"] == label and not a["iscrowd"]]
        assert score.num_objects == len(mine)
        assert score.num_images == len({a["image_id"] for a in mine})
        assert score.name == CLASSES[label - 1]


def test_means_are_means_of_the_classes(report: DetectionReport) -> None:
    for name in ("AP", "AP50", "AP50_voc07", "AP50_voc12", "precision", "recall", "F1"):
        values = [getattr(score, name) for score in report.classes]
        assert report.numbers[name] == pytest.approx(sum(values) / len(values)), name


def test_the_order_of_images_changes_nothing(fashion: list[EvaluatedImage], report: DetectionReport) -> None:
    assert evaluate_detections(fashion[::-1], CLASSES).numbers == pytest.approx(report.numbers, abs=1e-12)


def test_the_scale_of_everything_changes_no_number_of_voc(
    fashion: list[EvaluatedImage], report: DetectionReport
) -> None:
    other = evaluate_detections(changed(fashion, scale=4), CLASSES)
    assert {name: other.numbers[name] for name in VOC} == {name: report.numbers[name] for name in VOC}
    assert other.confusion == report.confusion
    assert other.numbers["AP"] == pytest.approx(report.numbers["AP"])
    assert other.numbers["APs"] != report.numbers["APs"]


def test_only_the_order_of_scores_matters_for_ap(
    fashion: list[EvaluatedImage], report: DetectionReport
) -> None:
    other = evaluate_detections(changed(fashion, scores=lambda scores: scores / 2), CLASSES)
    for name in ("AP", "AP50", "AR100", "AP50_voc07", "AP50_voc12"):
        assert other.numbers[name] == pytest.approx(report.numbers[name], abs=1e-12), name
    assert other.numbers["threshold"] < 0.5


def test_wrong_detections_with_lower_scores_do_not_raise_any_number(
    fashion: list[EvaluatedImage], report: DetectionReport, judge: Any
) -> None:
    rubbish = judge(Target.of([], []), [(label, 0.0, [0, 0, 5, 5]) for label in range(8)], key="rubbish")
    other = evaluate_detections([*fashion, rubbish], CLASSES)
    assert other.numbers["AP50"] <= report.numbers["AP50"]
    assert other.numbers["F1"] <= report.numbers["F1"]


def test_through_json_and_back(report: DetectionReport) -> None:
    text = json.dumps(report.to_json(), allow_nan=False)
    assert TypeAdapter(DetectionReport).validate_json(text) == report


def test_a_class_without_objects(judge: Any) -> None:
    evaluated = [
        judge(Target.of([[0, 0, 10, 10]], [0]), [(0, 0.9, [0, 0, 10, 10]), (1, 0.8, [50, 50, 60, 60])])
    ]
    report = evaluate_detections(evaluated, ("phone", "watch"))
    watch = report.classes[1]
    assert (watch.AP, watch.AP50_voc12, watch.num_objects, watch.F1) == (None, None, 0, 0)
    assert report.numbers["AP"] == report.numbers["F1"] == pytest.approx(1)
    assert TypeAdapter(DetectionReport).validate_json(json.dumps(report.to_json())) == report


def test_nothing_to_judge() -> None:
    report = evaluate_detections([], ("phone",))
    assert report.numbers["AP"] == report.numbers["AP50_voc07"] == report.numbers["F1"] == -1
    assert report.confusion == ((0, 0), (0, 0))


def test_arguments_are_not_changed(fashion: list[EvaluatedImage]) -> None:
    image = fashion[0]
    truth, boxes, scores = (
        image.target.boxes.copy(),
        image.detections.boxes.copy(),
        image.detections.scores.copy(),
    )
    evaluate_detections(fashion[:3], CLASSES)
    assert (image.target.boxes == truth).all()
    assert np.array_equal(image.detections.boxes, boxes)
    assert np.array_equal(image.detections.scores, scores)


def test_thousands_of_images_take_seconds(fashion: list[EvaluatedImage]) -> None:
    start = time.process_time()
    evaluate_detections(fashion * 10, CLASSES)
    assert time.process_time() - start < 15
