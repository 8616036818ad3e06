"""Advice is given where it is due, in one line."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from boxcrew.core.types import Ints
from boxcrew.data.checks.problem import Action, Problem, ProblemKind
from boxcrew.evaluate.advice import (
    ADD_EXAMPLES,
    Advice,
    contradicted_labels,
    detection_gap,
    doubted_objects,
    generalization_gap,
    imbalance,
    missing_data,
    noisy_labels,
    overfitting_trend,
    rare_class_missed,
    stalled,
    too_complex,
    worst,
)
from boxcrew.evaluate.classification import Probabilities
from boxcrew.evaluate.detection.suspects import Suspect, SuspectKind
from boxcrew.evaluate.evaluation import ClassRates
from boxcrew.evaluate.label_noise import LabelNoise

REMEDIES = "task.class_weights=true, task.balanced=true or task.focal=2 task.smoothing=0"
LONG = "a class\nwhose name has no end " * 5


def problem(kind: ProblemKind, *, file: str = "a.csv", action: Action = "left out", at: str = "") -> Problem:
    return Problem(kind=kind, file=file, at=at, message="is wrong", action=action)


def only(all_advice: tuple[Advice, ...]) -> Advice:
    (advice,) = all_advice
    return advice


def test_imbalance_names_the_classes_and_the_settings() -> None:
    advice = only(imbalance([900, 300, 12], ["shoe", "bag", "hat"], remedy="task.balanced=true"))
    assert advice.cause == "imbalance"
    assert advice.finding == "900 examples of shoe, 12 of hat (75 to 1)"
    assert advice.remedy == "task.balanced=true"
    assert only(imbalance([900, 12], ["shoe", "hat"])).remedy == ADD_EXAMPLES


@pytest.mark.parametrize("counts", [[50, 10], [7, 7], [3], []])
def test_classes_that_are_balanced_enough(counts: list[int]) -> None:
    assert imbalance(counts, ["shoe", "bag"][: len(counts)]) == ()
    assert imbalance([51, 10], ["shoe", "bag"])


def test_a_class_without_examples() -> None:
    advice = only(imbalance([40, 0, 40], ["shoe", "bag", "hat"]))
    assert "no example of bag" in advice.finding
    assert "5 more" in only(imbalance([9, *[0] * 8], list("abcdefghi"))).finding


def test_too_many_parameters_only_from_scratch() -> None:
    advice = only(too_complex(25_600_000, 1000, from_scratch=True, has_backbone=True))
    assert advice.cause == "too complex"
    assert "25.6 M parameters for 1000 training examples" in str(advice)
    assert too_complex(25_600_000, 1000, from_scratch=False, has_backbone=True) == ()
    assert too_complex(100_000, 1000, from_scratch=True, has_backbone=True) == ()


def test_published_weights_are_for_backbones() -> None:
    with_one, without = (
        only(too_complex(10**9, 10, from_scratch=True, has_backbone=has)).remedy for has in (True, False)
    )
    assert "init=pretrained" in with_one
    assert "init=pretrained" not in without


def rate(name: str, recall: float, num_examples: int = 10) -> ClassRates:
    return ClassRates(name=name, num_examples=num_examples, precision=0.5, recall=recall, F1=0.5)


def test_a_rare_class_far_below_the_mean() -> None:
    rates = [rate("shoe", 0.9), rate("bag", 0.9), rate("hat", 0.3)]
    advice = only(rare_class_missed([900, 300, 12], rates, remedy="task.balanced=true"))
    assert advice.cause == "imbalance"
    assert str(advice) == "recall of hat (12 examples) is 0.30, mean 0.70: task.balanced=true"
    assert advice.weight == pytest.approx(2)


@pytest.mark.parametrize(
    ("counts", "recalls", "num_judged"),
    [
        ([900, 300, 180], [0.9, 0.9, 0.0], 10),  # no rarer than others may be
        ([900, 300, 12], [0.9, 0.9, 0.8], 10),  # known all the same
        ([900, 300, 12], [0.9, 0.9, 0.0], 2),  # by chance, perhaps
        ([900, 300, 12], [0.9, 0.9, 0.0], 0),
    ],
)
def test_rare_classes_of_which_nothing_is_said(
    counts: list[int], recalls: list[float], num_judged: int
) -> None:
    rates = [rate("shoe", recalls[0]), rate("bag", recalls[1]), rate("hat", recalls[2], num_judged)]
    assert rare_class_missed(counts, rates) == ()


def answered(wrong: int, *, right: float = 0.9) -> tuple[Probabilities, Ints]:
    """Return predictions for 20 examples, and labels, the first of which contradict them."""
    labels = np.arange(20) % 2
    predictions = np.where(np.arange(20) < wrong, 1 - labels, labels)
    return np.where(np.eye(2, dtype=np.bool_)[predictions], right, 1 - right), labels


def test_labels_are_doubted_by_a_network_that_knows_the_classes() -> None:
    advice = only(contradicted_labels(*answered(2), key=lambda place: f"{place}.png", remedy="more"))
    assert str(advice) == "about 10% of validation labels seem wrong: check 2 suspects, first 0.png; more"
    assert only(contradicted_labels(*answered(2), key=None)).remedy == "check 2 suspects"
    assert contradicted_labels(*answered(1), key=None) == ()
    assert contradicted_labels(*answered(8), key=None) == ()


@pytest.mark.parametrize(("apart", "sharpness"), [(2, 1), (2, 3), (3, 3), (5, 3)])
def test_labels_are_not_doubted_where_classes_overlap(apart: float, sharpness: float) -> None:
    draw = np.random.default_rng(0)
    true = np.arange(4000) % 2
    scores = sharpness * apart * ((true - 0.5) * apart + draw.normal(size=4000))
    chances = 1 / (1 + np.exp(-scores))
    answers = np.stack([1 - chances, chances], axis=1)
    assert contradicted_labels(answers, true, key=None) == ()
    noisy = np.where(draw.random(4000) < 0.12, 1 - true, true)
    advice = only(contradicted_labels(answers, noisy, key=None))
    share = float(advice.finding.split()[1].removesuffix("%"))
    assert 9 < share < 16


def test_a_gap_of_accuracy_or_loss() -> None:
    advice = only(generalization_gap(train_loss=0.4, val_loss=0.45, train_accuracy=0.99, val_accuracy=0.8))
    assert "0.990" in advice.finding
    assert "0.800" in advice.finding
    for remedy in ("dropout", "optim.weight_decay", "augmentation", "evaluation.patience"):
        assert remedy in advice.remedy
    assert (
        "1.2 on training data, 1.7 on validation"
        in only(generalization_gap(train_loss=1.2, val_loss=1.7)).finding
    )


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
    assert not generalization_gap(
        train_loss=train_loss, val_loss=val_loss, train_accuracy=train_accuracy, val_accuracy=val_accuracy
    )


def test_noise_names_the_first_suspects() -> None:
    advice = only(
        noisy_labels(LabelNoise(rate=0.07, suspects=(4, 9, 2, 5)), lambda place: f"train/{place}.png")
    )
    assert advice.finding == "about 7% of the labels seem wrong"
    assert advice.remedy == "check 4 suspects, first train/4.png, train/9.png, train/2.png"
    assert only(noisy_labels(LabelNoise(rate=0.07, suspects=()))).remedy
    assert noisy_labels(LabelNoise(rate=0.02, suspects=(1,))) == ()


def test_what_the_data_lacks() -> None:
    problems = [
        problem("unreadable-image", file="b/1.png"),
        problem("truncated-image", file="b/2.png"),
        problem("image-without-annotation", file="c.png", action="noted"),
        problem("exif-rotation", action="repaired"),
    ]
    unlabeled, broken = missing_data(problems, 200)
    assert (broken.cause, unlabeled.cause) == ("noise", "missing features")
    assert broken.finding == "2 examples that cannot be read (first: b/1.png)"
    assert unlabeled.finding == "1 example without label (first: c.png)"
    assert broken.weight == pytest.approx(1)
    assert missing_data(problems[-1:], 200) == ()
    assert missing_data([problem("not-an-image", file="a class folder", action="noted")], 200) == ()
    assert missing_data([], 0) == ()


def test_missing_values_and_columns_that_tell_nothing() -> None:
    problems = [problem("value-missing", at="line 3", action="repaired")] * 3
    values, column = missing_data(
        [*problems, problem("column-constant", at="column size", action="noted")], 100
    )
    assert values.finding == "3 values missing (first: a.csv line 3)"
    assert column.finding == "1 column with a single value (first: a.csv column size)"
    assert values.cause == column.cause == "missing features"
    assert values.weight > column.weight


def test_a_problem_of_many_values_counts_as_many() -> None:
    problems = [
        Problem(kind="value-missing", file="a.csv", message="", action="repaired", count=count)
        for count in (1_500_000, 1)
    ]
    values = only(missing_data(problems, 100_000))
    assert values.finding == "1500001 values missing (first: a.csv)"
    assert values.weight == pytest.approx(1500.001)


def test_the_worst_come_first_and_each_cause_has_its_turn() -> None:
    def advice(cause: str, weight: float) -> Advice:
        return Advice(cause=cause, finding=f"{cause} {weight}", remedy="", weight=weight)  # type: ignore[arg-type]

    all_advice = [
        advice("noise", 2),
        advice("imbalance", 9),
        advice("imbalance", 8),
        advice("too complex", 1),
        advice("imbalance", 7),
    ]
    assert [piece.weight for piece in worst(all_advice)] == [9, 2, 1]
    assert [piece.weight for piece in worst(all_advice, limit=9)] == [9, 2, 1, 8, 7]
    assert [piece.weight for piece in worst(all_advice[1:3])] == [9, 8]
    assert worst([]) == ()


def suspect(*, kind: SuspectKind = "wrong-class", score: float = 0.95, key: str = "a.jpg") -> Suspect:
    return Suspect(
        kind=kind, key=key, split="val", box=(0, 0, 9, 9), label="shoe", detected="hat", score=score, loss=3.0
    )


def test_labels_of_objects_are_doubted_where_a_detector_is_sure() -> None:
    advice = only(doubted_objects([suspect(), suspect(kind="missing-label"), suspect(score=0.5)], 20))
    assert advice.finding == "about 10% of validation labels seem wrong or missing"
    assert "first a.jpg" in advice.remedy
    assert doubted_objects([suspect()], 20) == ()  # no more than one in twenty
    unsure = [suspect(score=0.7), suspect(kind="unfindable"), suspect(kind="wrong-box")]
    assert doubted_objects(unsure * 9, 20) == ()


def test_photos_known_better_than_new_ones() -> None:
    assert only(detection_gap(learned=0.95, new=0.7)).cause == "too complex"
    assert detection_gap(learned=0.95, new=0.76) == ()
    assert detection_gap(learned=-1.0, new=-1.0) == ()  # where nothing is there to be found


def test_every_advice_is_one_line_whatever_the_data_is_called() -> None:
    far = "a folder\nof many names/" * 9 + "last.png"
    all_advice = [
        *imbalance([9_999_999, 1], [LONG, LONG]),
        *imbalance([9_999_999, 1_000_000], [LONG, LONG]),
        *imbalance([5, *[0] * 2000], [LONG] * 2001),
        *too_complex(10**12, 10**7, from_scratch=True, has_backbone=True),
        *rare_class_missed([99_999, 9_999], [rate(LONG, 1.0), rate(LONG, 0.0)], remedy=REMEDIES),
        *contradicted_labels(
            np.repeat(answered(5)[0], 20_000, axis=0),
            np.repeat(answered(5)[1], 20_000),
            key=lambda _: far,
            remedy="for training: task.check_labels=true",
        ),
        *generalization_gap(train_loss=1e-7, val_loss=1234567.0, train_accuracy=1.0, val_accuracy=0.0),
        *generalization_gap(train_loss=0.1, val_loss=0.1, train_accuracy=1.0, val_accuracy=0.0),
        *noisy_labels(LabelNoise(rate=1.0, suspects=tuple(range(100_000))), lambda _: far),
        *noisy_labels(LabelNoise(rate=1.0, suspects=())),
        *missing_data([problem("missing-file", file=far, at="line 3")] * 100_000, 10),
        *missing_data([problem("image-without-annotation", file=far)] * 100_000, 10),
        *detection_gap(learned=1.0, new=0.0),
        *doubted_objects([suspect(key=far)] * 9_999, 10_000),
        *overfitting_trend(best_step=10**7, loss_then=1234567.0, loss_now=0.0000123, evaluations=999),
        *stalled(best_step=10**7, evaluations=10**6),
    ]
    assert len(all_advice) == 16
    for advice in all_advice:
        line = str(advice)
        assert len(line) < 140, line
        assert line.splitlines() == [line]
        assert json.loads(json.dumps(advice.to_json()))["cause"] == advice.cause


def test_what_was_not_measured_is_not_compared() -> None:
    """A validation split without boxes has no AP50, and adding images would not change that."""
    for learned, new in ((0.9, -1.0), (-1.0, 0.1), (0.9, float("nan"))):
        assert detection_gap(learned=learned, new=new) == ()
