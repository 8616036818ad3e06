"""Advice is given where it is due, in one line."""

from __future__ import annotations

import json
import math

import pytest

from boxcrew.data.problem import Action, Kind, Problem
from boxcrew.evaluate.causes import Advice, gap, imbalance, missing, noise, too_complex, worst
from boxcrew.evaluate.label_noise import LabelNoise

LONG = "a class\nwhose name has no end " * 5


def problem(kind: Kind, *, file: str = "a.csv", action: Action = "left out", at: str = "") -> Problem:
    return Problem(kind=kind, file=file, at=at, what="is wrong", action=action)


def one(found: tuple[Advice, ...]) -> Advice:
    (advice,) = found
    return advice


def test_imbalance_names_the_classes_and_the_settings() -> None:
    advice = one(imbalance([900, 300, 12], ["shoe", "bag", "hat"]))
    assert advice.cause == "imbalance"
    assert advice.what == "900 examples of shoe, 12 of hat (75 to 1)"
    for setting in ("task.class_weights=true", "task.balanced=true", "task.focal=2"):
        assert setting in advice.remedy


@pytest.mark.parametrize("counts", [[50, 10], [7, 7], [3], []])
def test_classes_that_are_balanced_enough(counts: list[int]) -> None:
    assert imbalance(counts, ["shoe", "bag"][: len(counts)]) == ()
    assert imbalance([51, 10], ["shoe", "bag"])


def test_a_class_without_examples() -> None:
    advice = one(imbalance([40, 0, 40], ["shoe", "bag", "hat"]))
    assert "no example of bag" in advice.what
    assert "5 more" in one(imbalance([9, *[0] * 8], list("abcdefghi"))).what


def test_too_many_parameters_only_from_scratch() -> None:
    assert one(too_complex(25_600_000, 1000, from_scratch=True)).cause == "too complex"
    assert "25.6 M parameters learn from 1000 examples" in str(
        too_complex(25_600_000, 1000, from_scratch=True)[0]
    )
    assert too_complex(25_600_000, 1000, from_scratch=False) == ()
    assert too_complex(100_000, 1000, from_scratch=True) == ()


def test_a_gap_of_accuracy_or_loss() -> None:
    advice = one(gap(train_loss=0.4, val_loss=0.45, train_accuracy=0.99, val_accuracy=0.8))
    assert "0.990" in advice.what
    assert "0.800" in advice.what
    for remedy in ("dropout", "optim.weight_decay", "augmentation", "evaluation.patience"):
        assert remedy in advice.remedy
    assert "1.2 on what was learnt, 1.7 on new" in one(gap(train_loss=1.2, val_loss=1.7)).what


@pytest.mark.parametrize(
    ("train_loss", "val_loss", "train_accuracy", "val_accuracy"),
    [
        (0.30, 0.35, 0.95, 0.92),
        (0.01, 0.15, 0.99, 0.97),  # many times as large, but small
        (2.00, 2.40, None, None),  # 0.4 more, but of much
        (0.50, 0.20, 0.80, 0.99),  # training has dropout, evaluation has none
        (0.50, math.nan, None, None),
    ],
)
def test_no_gap(
    train_loss: float, val_loss: float, train_accuracy: float | None, val_accuracy: float | None
) -> None:
    assert not gap(
        train_loss=train_loss, val_loss=val_loss, train_accuracy=train_accuracy, val_accuracy=val_accuracy
    )


def test_noise_names_the_first_suspects() -> None:
    advice = one(noise(LabelNoise(rate=0.07, suspects=(4, 9, 2, 5)), lambda place: f"train/{place}.png"))
    assert advice.what == "about 7% of the labels seem wrong"
    assert advice.remedy == "look at 4 suspects, first train/4.png, train/9.png, train/2.png"
    assert one(noise(LabelNoise(rate=0.07, suspects=()))).remedy
    assert noise(LabelNoise(rate=0.02, suspects=(1,))) == ()


def test_what_the_data_lacks() -> None:
    problems = [
        problem("unreadable-image", file="b/1.png"),
        problem("truncated-image", file="b/2.png"),
        problem("image-without-annotation", file="c.png", action="noted"),
        problem("exif-rotation", action="repaired"),
    ]
    unlabelled, broken = missing(problems, 200)
    assert (broken.cause, unlabelled.cause) == ("noise", "missing features")
    assert broken.what == "2 examples that cannot be read (first: b/1.png)"
    assert unlabelled.what == "1 example without label (first: c.png)"
    assert broken.weight == pytest.approx(1)
    assert missing(problems[-1:], 200) == ()
    assert missing([], 0) == ()


def test_missing_values_and_columns_that_tell_nothing() -> None:
    problems = [problem("value-missing", at="line 3", action="repaired")] * 3
    values, column = missing([*problems, problem("column-constant", at="column size", action="noted")], 100)
    assert values.what == "3 values missing (first: a.csv line 3)"
    assert column.what == "1 column without any change (first: a.csv column size)"
    assert values.cause == column.cause == "missing features"
    assert values.weight > column.weight


def test_a_problem_of_many_values_counts_as_many() -> None:
    problems = [
        Problem(kind="value-missing", file="a.csv", what="", action="repaired", count=count)
        for count in (1_500_000, 1)
    ]
    values = one(missing(problems, 100_000))
    assert values.what == "1500001 values missing (first: a.csv)"
    assert values.weight == pytest.approx(1500.001)


def test_the_worst_come_first_and_each_cause_has_its_turn() -> None:
    def advice(cause: str, weight: float) -> Advice:
        return Advice(cause=cause, what=f"{cause} {weight}", remedy="", weight=weight)  # type: ignore[arg-type]

    found = [
        advice("noise", 2),
        advice("imbalance", 9),
        advice("imbalance", 8),
        advice("too complex", 1),
        advice("imbalance", 7),
    ]
    assert [one.weight for one in worst(found)] == [9, 2, 1]
    assert [one.weight for one in worst(found, limit=9)] == [9, 2, 1, 8, 7]
    assert [one.weight for one in worst(found[1:3])] == [9, 8]
    assert worst([]) == ()


def test_every_advice_is_one_line_whatever_the_data_is_called() -> None:
    far = "a folder\nof many names/" * 9 + "last.png"
    found = [
        *imbalance([9_999_999, 1], [LONG, LONG]),
        *imbalance([9_999_999, 1_000_000], [LONG, LONG]),
        *imbalance([5, *[0] * 2000], [LONG] * 2001),
        *too_complex(10**12, 10**7, from_scratch=True),
        *gap(train_loss=1e-7, val_loss=1234567.0, train_accuracy=1.0, val_accuracy=0.0),
        *gap(train_loss=0.1, val_loss=0.1, train_accuracy=1.0, val_accuracy=0.0),
        *noise(LabelNoise(rate=1.0, suspects=tuple(range(100_000))), lambda _: far),
        *noise(LabelNoise(rate=1.0, suspects=())),
        *missing([problem("missing-file", file=far, at="line 3")] * 100_000, 10),
        *missing([problem("image-without-annotation", file=far)] * 100_000, 10),
    ]
    assert len(found) == 10
    for advice in found:
        line = str(advice)
        assert len(line) < 140, line
        assert line.splitlines() == [line]
        assert json.loads(json.dumps(advice.to_json()))["cause"] == advice.cause
