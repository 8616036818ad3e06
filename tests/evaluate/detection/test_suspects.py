"""Suspects are the planted errors of labels; a bad detector suspects nothing."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from boxcrew.core.types import Detections, Target
from boxcrew.data.detection.source import open_source
from boxcrew.evaluate.detection.suspects import Suspect, suspects_of
from boxcrew.evaluate.detection.types import EvaluatedImage

CLASSES = ("tea", "pot", "cup")
Found = tuple[tuple[float, float, float, float], int, float]  # box, label, score

LEFT = (10.0, 10.0, 50.0, 50.0)
RIGHT = (100.0, 100.0, 160.0, 140.0)


def evaluated(target: Target, findings: Sequence[Found], *, key: str = "odd") -> EvaluatedImage:
    best_first = sorted(findings, key=lambda finding: -finding[2])
    return EvaluatedImage(
        key=key,
        width=200,
        height=200,
        target=target,
        detections=Detections.of(
            boxes=torch.tensor([box for box, _, _ in best_first]).reshape(-1, 4),
            scores=torch.tensor([score for _, _, score in best_first]),
            labels=torch.tensor([label for _, label, _ in best_first], dtype=torch.int64),
        ),
    )


def honest(key: str, *, score: float = 0.9) -> EvaluatedImage:
    """Every class labeled once, and found."""
    boxes = [LEFT, RIGHT, (10.0, 100.0, 60.0, 180.0)]
    return evaluated(
        Target.of(boxes, [0, 1, 2]), [(box, label, score) for label, box in enumerate(boxes)], key=key
    )


def among_honest(odd: EvaluatedImage, *, limit: int = 24) -> tuple[Suspect, ...]:
    """Return the suspects of one image, by a detector that is right about ten others."""
    return suspects_of({"train": [*(honest(f"{i}") for i in range(10)), odd]}, CLASSES, limit=limit)


def test_agreement_is_not_suspect() -> None:
    assert among_honest(honest("odd")) == ()


def test_a_label_that_is_missing() -> None:
    (suspect,) = among_honest(evaluated(Target.of([LEFT], [0]), [(LEFT, 0, 0.9), (RIGHT, 1, 0.8)]))
    assert (suspect.kind, suspect.key, suspect.split) == ("missing-label", "odd", "train")
    assert (suspect.label, suspect.detected, suspect.box, suspect.detected_box) == (None, "pot", RIGHT, RIGHT)
    assert suspect.score == pytest.approx(0.8)
    assert suspect.loss == pytest.approx(-math.log(1 - 0.8), rel=1e-4)


def test_a_label_of_the_wrong_class() -> None:
    (suspect,) = among_honest(evaluated(Target.of([RIGHT], [0]), [(RIGHT, 1, 0.9), (RIGHT, 0, 0.1)]))
    assert (suspect.kind, suspect.label, suspect.detected, suspect.box) == (
        "wrong-class",
        "tea",
        "pot",
        RIGHT,
    )
    assert suspect.loss == pytest.approx(-math.log(0.1) - math.log(1 - 0.9), rel=1e-4)


def test_a_box_in_the_wrong_place() -> None:
    shifted = (25.0, 25.0, 65.0, 65.0)  # IoU 0.24
    (suspect,) = among_honest(evaluated(Target.of([shifted], [0]), [(LEFT, 0, 0.9)]))
    assert (suspect.kind, suspect.label, suspect.detected) == ("wrong-box", "tea", "tea")
    assert (suspect.box, suspect.detected_box) == (shifted, LEFT)


def test_a_label_where_nothing_is() -> None:
    (suspect,) = among_honest(evaluated(Target.of([LEFT, RIGHT], [0, 1]), [(LEFT, 0, 0.9)]))
    assert (suspect.kind, suspect.label, suspect.detected, suspect.box, suspect.detected_box) == (
        "unfindable",
        "pot",
        None,
        RIGHT,
        None,
    )
    assert suspect.loss == pytest.approx(-math.log(0.01))
    (suspect,) = among_honest(evaluated(Target.of([RIGHT], [1]), [(RIGHT, 1, 0.05)]))
    assert suspect.loss == pytest.approx(-math.log(0.05), rel=1e-4)


def test_difficult_objects_and_crowds_excuse_and_are_not_accused() -> None:
    flags: tuple[dict[str, list[bool]], ...] = ({"difficult": [True]}, {"crowd": [True]})
    for flag in flags:
        assert among_honest(evaluated(Target.of([RIGHT], [1], **flag), [])) == ()
        assert among_honest(evaluated(Target.of([RIGHT], [1], **flag), [(RIGHT, 1, 0.9)])) == ()
    inside = (110.0, 110.0, 125.0, 125.0)
    assert among_honest(evaluated(Target.of([RIGHT], [1], crowd=[True]), [(inside, 1, 0.9)])) == ()


@pytest.mark.parametrize(
    "second",
    [
        (LEFT, 1, 0.6),  # another class on an object that is found as what it is
        ((10.0, 10.0, 50.0, 25.0), 0, 0.6),  # a part of it
        (RIGHT, 1, 0.2),  # not said with confidence
    ],
)
def test_what_is_not_a_missing_label(second: Found) -> None:
    assert among_honest(evaluated(Target.of([LEFT], [0]), [(LEFT, 0, 0.9), second])) == ()


def test_two_findings_at_one_place_are_one_missing_label() -> None:
    near = (101.0, 101.0, 161.0, 141.0)
    (suspect,) = among_honest(evaluated(Target.of([], []), [(RIGHT, 1, 0.9), (near, 2, 0.7)]))
    assert suspect.detected == "pot"


def test_worst_first_and_no_more_than_the_limit_of_each_kind() -> None:
    images = [honest(f"{i}") for i in range(40)]
    images += [evaluated(Target.of([], []), [(RIGHT, 1, 0.5 + i / 40)], key=f"missing{i}") for i in range(9)]
    images += [
        evaluated(Target.of([LEFT], [0]), [(LEFT, 0, 0.01 * i + 0.02)], key=f"not{i}") for i in range(9)
    ]
    suspects = suspects_of({"train": images[:45], "val": images[45:]}, CLASSES, limit=4)
    assert [suspect.kind for suspect in suspects] == ["missing-label"] * 4 + ["unfindable"] * 4
    assert [suspect.key for suspect in suspects] == [f"missing{i}" for i in (8, 7, 6, 5)] + [
        f"not{i}" for i in range(4)
    ]
    assert {suspect.split for suspect in suspects} == {"val"}


@pytest.mark.parametrize("score", [0.02, 0.97])
def test_a_detector_that_has_learned_nothing_is_not_listened_to(score: float) -> None:
    draw = np.random.default_rng(0)
    images = []
    for i in range(30):
        low = draw.uniform(0, 150, (20, 2))
        boxes = np.hstack([low, low + 40]).tolist()
        target = Target.of([LEFT, RIGHT], [0, 1])
        images.append(
            evaluated(target, [(tuple(box), int(draw.integers(3)), score) for box in boxes], key=f"{i}")
        )
    assert suspects_of({"train": images}, CLASSES) == ()


def test_a_class_that_is_not_known_is_left_out() -> None:
    images = [replace(honest(f"{i}"), target=Target.of([LEFT, RIGHT], [0, 1])) for i in range(10)]
    missed = evaluated(Target.of([LEFT], [2]), [(RIGHT, 1, 0.9)])
    suspects = suspects_of({"train": [*images, missed]}, CLASSES)
    assert [(suspect.kind, suspect.detected) for suspect in suspects] == [("missing-label", "pot")]


def test_planted_errors_in_a_real_set_are_all_found_and_nothing_else() -> None:
    """Return the suspects of a detector that detects the truth, a few pixels off."""
    records = [record for record in open_source("shelf").split("val") if len(record.target) >= 2][:80]
    names = open_source("shelf").classes
    draw = np.random.default_rng(1)
    planted: dict[str, str] = {}
    images = []
    for i, record in enumerate(records):
        truth, target = record.target, record.target
        number = int(draw.integers(len(target)))
        if i % 10 == 0:
            planted[record.key] = "missing-label"
            target = target.select(np.arange(len(target)) != number)
        elif i % 10 == 5:
            planted[record.key] = "wrong-class"
            labels = target.labels.copy()
            labels[number] = (labels[number] + 3) % len(names)
            target = replace(target, labels=labels)
        boxes = (truth.boxes + draw.uniform(-0.5, 0.5, truth.boxes.shape)).tolist()
        findings = [(tuple(b), int(c), 0.9) for b, c in zip(boxes, truth.labels, strict=True)]
        images.append(evaluated(target, findings, key=record.key))
    suspects = suspects_of({"val": images}, names)
    assert {suspect.key: suspect.kind for suspect in suspects} == planted
    assert Counter(suspect.kind for suspect in suspects) == {"missing-label": 8, "wrong-class": 8}


def test_json_can_be_written() -> None:
    suspects = among_honest(evaluated(Target.of([RIGHT], [0]), [(RIGHT, 1, 0.9)]))
    assert json.loads(json.dumps([suspect.to_json() for suspect in suspects]))[0]["detected_box"] == list(
        RIGHT
    )
