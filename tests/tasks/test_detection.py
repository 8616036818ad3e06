"""The loss is the task's forward; what a trained detector says about its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from boxcrew.core.types import Detections, Target
from boxcrew.data.detection.records import Record, Records
from boxcrew.data.detection.source import open_source
from boxcrew.data.loading.workers import Workers
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.evaluate.advice import Advice
from boxcrew.evaluate.detection.evaluator import DetectionEvaluation
from boxcrew.evaluate.detection.metrics import evaluate_detections
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.tasks.data import EvalOptions
from boxcrew.tasks.detection import NUM_TRAIN_EVALUATED, DetectionConfig, DetectionData, DetectionTask
from boxcrew.testing.detectors import CLASSES, noise_batch

Answer = Callable[[Record], Target]
"""What a detector finds in a photo, all of it surely."""


def test_the_tasks_forward_is_the_detectors_loss() -> None:
    detector = SsdLite(SsdLiteConfig(size=64, backbone="mobilenetv3_small_050"), CLASSES)
    task = DetectionTask(detector).eval()
    batch = noise_batch((64, 64), (2, 1))
    with torch.no_grad():
        losses, wanted = task(batch), detector.losses(batch)
    torch.testing.assert_close(dict(losses.terms), dict(wanted.terms))
    assert {name for name, _ in task.named_parameters()} == {
        f"detector.{name}" for name, _ in detector.named_parameters()
    }
    with pytest.raises(AssertionError):
        task(batch, "generator")


def evaluated(records: Sequence[Record], classes: tuple[str, ...], answer: Answer) -> DetectionEvaluation:
    evaluated = []
    for record in records:
        prediction = answer(record)
        detections = Detections.of(
            boxes=torch.from_numpy(prediction.boxes),
            scores=torch.full((len(prediction),), 0.95),
            labels=torch.from_numpy(prediction.labels),
        )
        evaluated.append(
            EvaluatedImage(
                key=record.key,
                width=record.width,
                height=record.height,
                target=record.target,
                detections=detections,
            )
        )
    report = evaluate_detections(evaluated, classes)
    return DetectionEvaluation(
        report=report, images=tuple(evaluated), milliseconds={}, seconds=0.0, skipped=()
    )


def advised(
    monkeypatch: pytest.MonkeyPatch, task_data: DetectionData, *, learned: Answer, new: Answer
) -> dict[str, Advice]:
    """Return the advice after training, for a detector with these detections on training and new images."""
    looked_at: list[int] = []

    def evaluate(self: DetectionData, *_: Any) -> DetectionEvaluation:
        looked_at.append(len(self.val))
        return evaluated(self.val, self.source.classes, learned)

    last = evaluated(task_data.val, task_data.source.classes, new)
    monkeypatch.setattr(DetectionData, "evaluate", evaluate)
    task: Any = None
    all_advice = task_data.advice_after(
        task, lambda inputs: inputs, EvalOptions(batch=1, workers=Workers()), last
    )
    (num_photos,) = looked_at
    assert NUM_TRAIN_EVALUATED / 2 < num_photos <= NUM_TRAIN_EVALUATED
    return {advice.cause: advice for advice in all_advice}


@pytest.fixture(scope="module")
def shelf() -> DetectionData:
    return DetectionData.of(DetectionConfig(), open_source("shelf"))


def right(record: Record) -> Target:
    return record.target


def test_a_detector_that_knows_all_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch, shelf: DetectionData
) -> None:
    assert advised(monkeypatch, shelf, learned=right, new=right) == {}


def test_photos_that_are_known_by_heart_are_told(
    monkeypatch: pytest.MonkeyPatch, shelf: DetectionData
) -> None:
    def half(record: Record) -> Target:
        return record.target.select(np.arange(len(record.target)) % 2 == 0)

    advice_by_cause = advised(monkeypatch, shelf, learned=right, new=half)
    assert advice_by_cause.keys() == {"too complex"}
    assert advice_by_cause["too complex"].finding.startswith("AP50 is 1.000 on training images, 0.")
    assert advised(monkeypatch, shelf, learned=half, new=half) == {}


def test_labels_that_contradict_what_a_detector_knows_are_told(
    monkeypatch: pytest.MonkeyPatch, shelf: DetectionData
) -> None:
    """One object of every second image is labeled as the next class, and detected as its own."""

    def mislabeled(record: Record) -> Record:
        labels = record.target.labels.copy()
        labels[:1] = (labels[:1] + 1) % len(shelf.source.classes)
        return replace(record, target=replace(record.target, labels=labels))

    true = {record.key: record.target for record in shelf.val}
    wrong = Records.of(record if place % 2 else mislabeled(record) for place, record in enumerate(shelf.val))
    advice_by_cause = advised(
        monkeypatch, replace(shelf, val=wrong), learned=right, new=lambda record: true[record.key]
    )
    assert "of validation labels seem wrong or missing" in advice_by_cause["noise"].finding
    assert "boxcrew doctor" in advice_by_cause["noise"].remedy


def test_a_rare_class_that_is_not_found_is_told(
    monkeypatch: pytest.MonkeyPatch, shelf: DetectionData
) -> None:
    def without_books(record: Record) -> Target:
        return record.target.select(record.target.labels != 7)

    few = [record for record in shelf.train if 7 not in record.target.labels]
    rare = replace(shelf, train=Records.of([*few, *shelf.train[:4]]))
    advice_by_cause = advised(monkeypatch, rare, learned=right, new=without_books)
    assert advice_by_cause["imbalance"].finding.startswith("recall of books")
    common = advised(monkeypatch, shelf, learned=right, new=without_books)
    assert "imbalance" not in common
