"""The numbers of a classifier."""

from __future__ import annotations

import json
import math

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import TypeAdapter

from boxcrew.core.errors import ModelError
from boxcrew.core.types import Floats, Ints
from boxcrew.evaluate.classification import NUM_BINS, ClassificationReport, Probabilities, evaluate_classes


def guesses(num: int, num_classes: int, seed: int = 0) -> tuple[Floats, Ints]:
    """Return the probabilities of a middling classifier."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, num_classes, num)
    scores = random.normal(0, 1, (num, num_classes)) + 1.5 * np.eye(num_classes)[labels]
    exponents = np.exp(scores)
    return (exponents / exponents.sum(axis=1, keepdims=True)).astype(np.float32), labels


def names(num_classes: int) -> list[str]:
    return [f"class {label}" for label in range(num_classes)]


def test_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.25, 0.25]])
    report = evaluate_classes(probabilities, np.array([0, 1, 1, 0]), ["a", "b", "c"])
    assert report.confusion == ((2, 0, 0), (1, 1, 0), (0, 0, 0))
    a, b, c = report.classes
    assert (a.name, a.num_examples, b.num_examples, c.num_examples) == ("a", 2, 2, 0)
    assert (a.precision, a.recall, a.F1) == pytest.approx((2 / 3, 1, 0.8))
    assert (b.precision, b.recall, b.F1) == pytest.approx((1, 0.5, 2 / 3))
    assert (c.precision, c.recall, c.F1) == (0, 0, 0)
    loss = -(math.log(0.9) + math.log(0.3) + math.log(0.7) + math.log(0.5)) / 4
    # Of the four, alone in their bins, the second is wrong.
    off = (0.1 + 0.6 + 0.3 + 0.5) / 4
    expected = {
        "accuracy": 0.75,
        "val_loss": loss,
        "precision": 5 / 6,
        "recall": 0.75,
        "F1": 11 / 15,
        "ECE": off,
    }
    assert dict(report.numbers) == pytest.approx(expected)


@pytest.mark.parametrize("num_classes", [2, 5, 6, 40])
def test_against_counting_one_by_one(num_classes: int) -> None:
    probabilities, labels = guesses(300, num_classes)
    report = evaluate_classes(probabilities, labels, names(num_classes))
    best_first = [sorted(range(num_classes), key=lambda label: -row[label]) for row in probabilities.tolist()]
    first = sum(best[0] == label for best, label in zip(best_first, labels, strict=True))
    five = sum(label in best[:5] for best, label in zip(best_first, labels, strict=True))
    loss = sum(-math.log(row[label]) for row, label in zip(probabilities.tolist(), labels, strict=True))
    assert report.numbers["accuracy"] == pytest.approx(first / 300)
    assert report.numbers["val_loss"] == pytest.approx(loss / 300)
    assert report.numbers.get("accuracy5") == (pytest.approx(five / 300) if num_classes > 5 else None)
    assert sum(map(sum, report.confusion)) == sum(rates.num_examples for rates in report.classes) == 300
    for label, rates in enumerate(report.classes):
        predictions = [best[0] == label for best in best_first]
        right = sum(f and t == label for f, t in zip(predictions, labels, strict=True))
        assert rates.precision == pytest.approx(right / max(1, sum(predictions)))
        assert rates.recall == pytest.approx(right / max(1, int((labels == label).sum())))


def test_calibration_against_counting_one_by_one() -> None:
    probabilities, labels = guesses(500, 4)
    report = evaluate_classes(probabilities, labels, names(4))
    off = 0.0
    for part, calibration_bin in enumerate(report.calibration):
        low, high = part / NUM_BINS, (part + 1) / NUM_BINS
        mine = [(max(row), row.index(max(row)) == label)
                for row, label in zip(probabilities.tolist(), labels, strict=True)
                if low < max(row) <= high]  # fmt: skip
        assert calibration_bin.count == len(mine)
        if mine:
            assert calibration_bin.confidence == pytest.approx(sum(guess[0] for guess in mine) / len(mine))
            assert calibration_bin.accuracy == pytest.approx(sum(guess[1] for guess in mine) / len(mine))
            off += abs(sum(guess[0] - guess[1] for guess in mine)) / 500
    assert report.numbers["ECE"] == pytest.approx(off)
    assert 0.01 < off < 0.5


def test_a_classifier_that_knows_how_sure_it_is_has_no_calibration_error() -> None:
    random = np.random.default_rng(3)
    sure = random.uniform(0.5, 1, 200_000)
    labels = (random.random(200_000) > sure).astype(np.int64)
    honest = np.stack([sure, 1 - sure], axis=1)
    assert evaluate_classes(honest, labels, ["a", "b"]).numbers["ECE"] < 0.005
    boasting = np.stack([np.full(200_000, 0.99), np.full(200_000, 0.01)], axis=1)
    assert evaluate_classes(boasting, labels, ["a", "b"]).numbers["ECE"] == pytest.approx(0.24, abs=0.01)


def test_equal_probabilities_go_to_the_first_class() -> None:
    report = evaluate_classes(np.full((10, 10), 0.1), np.arange(10), names(10))
    assert report.numbers["accuracy"] == pytest.approx(0.1)
    assert report.numbers["accuracy5"] == pytest.approx(0.5)
    assert [row[0] for row in report.confusion] == [1] * 10


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_certain_and_wrong_is_finite(dtype: npt.DTypeLike) -> None:
    report = evaluate_classes(np.array([[1, 0], [1, 0]], dtype=dtype), np.array([0, 1]), ["a", "b"])
    assert report.numbers["val_loss"] == pytest.approx(87.336 / 2, abs=0.01)
    assert report.numbers["ECE"] == pytest.approx(0.5)
    assert report.calibration[-1].count == 2


def test_a_probability_rounded_to_above_one_is_no_gain() -> None:
    report = evaluate_classes(np.array([[1.0000001, 0.0]]), np.array([0]), ["a", "b"])
    assert report.numbers["val_loss"] == 0
    assert report.calibration[-1].count == 1


def test_answers_that_are_not_numbers() -> None:
    probabilities, labels = guesses(5, 3)
    probabilities[3, 1] = np.nan
    with pytest.raises(ModelError, match="1 of 5 examples") as caught:
        evaluate_classes(probabilities, labels, names(3))
    assert "optim.rate" in caught.value.advice


def test_the_order_of_examples_changes_nothing() -> None:
    probabilities, labels = guesses(300, 7)
    report = evaluate_classes(probabilities, labels, names(7))
    other = evaluate_classes(probabilities[::-1], labels[::-1], names(7))
    assert other.numbers == pytest.approx(dict(report.numbers))
    assert (other.classes, other.confusion) == (report.classes, report.confusion)


@pytest.mark.parametrize("num_classes", [1, 3, 8])
def test_nothing_to_judge(num_classes: int) -> None:
    empty: Probabilities = np.zeros((0, num_classes))
    report = evaluate_classes(empty, np.zeros(0, np.int64), names(num_classes))
    assert set(report.numbers.values()) == {-1}
    assert ("accuracy5" in report.numbers) == (num_classes == 8)
    assert TypeAdapter(ClassificationReport).validate_json(json.dumps(report.to_json())) == report


def test_through_json_and_back() -> None:
    report = evaluate_classes(*guesses(50, 6), names(6))
    text = json.dumps({"milliseconds": 3, **report.to_json()}, allow_nan=False)
    assert TypeAdapter(ClassificationReport).validate_json(text) == report


def test_arguments_are_not_changed() -> None:
    probabilities, labels = guesses(50, 6)
    before, labels_before = probabilities.copy(), labels.copy()
    evaluate_classes(probabilities, labels, names(6))
    assert (probabilities == before).all()
    assert (labels == labels_before).all()
