"""Evaluates classifiers: accuracy, loss, rates of each class, confusion and calibration on one split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from boxcrew.core.types import Bools, Ints
from boxcrew.evaluate.evaluation import (
    ClassRates,
    Evaluation,
    Report,
    diverged,
    f1,
    mean_defined,
    numbers_to_json,
)

Probabilities = npt.NDArray[np.floating[Any]]
"""(N, C) class probabilities that a network predicts for N examples; each row adds up to 1."""

NUM_BINS = 15
"""Equal bins of the confidence 0..1 in which it is compared with accuracy (Guo et al. 2017)."""

_TOP = 5
_MIN_PROBABILITY = float(np.finfo(np.float32).tiny)  # stands for one that was rounded to 0: 87 nats


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """The examples whose greatest probability lies in one bin. Means are 0 if there are none."""

    count: int
    confidence: float  # mean of these probabilities
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class ClassificationReport(Report):
    """All that is measured about a classifier on one split."""

    numbers: Mapping[str, float]
    """`accuracy`, `accuracy5` (the truth is among the five likeliest; only if there are more classes), `loss`
    (mean negative log-likelihood, nats), `precision recall F1` (means over the classes that have examples)
    and `ECE` (expected calibration error). -1 where undefined."""
    classes: tuple[ClassRates, ...]
    confusion: tuple[tuple[int, ...], ...]  # (C, C): rows are true classes, columns predicted ones
    calibration: tuple[CalibrationBin, ...]  # NUM_BINS of them, lowest confidence first


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassificationEvaluation(Evaluation):
    """The evaluation of a classifier on N examples."""

    report: ClassificationReport
    probabilities: Probabilities  # (N, C)
    labels: Ints  # (N,)
    first: Tensor  # inputs of the first examples, to be shown
    milliseconds: float  # of the network, per example
    seconds: float
    skipped: tuple[str, ...]

    @property
    def numbers(self) -> Mapping[str, float]:
        """The report's numbers, with `loss` as `val_loss`: a run's `loss` is that of training."""
        return {"val_loss" if name == "loss" else name: value for name, value in self.report.numbers.items()}

    def sentence(self) -> str:
        count = sum(rates.num_examples for rates in self.report.classes)
        numbers = self.report.numbers
        return f"accuracy {numbers['accuracy']:.4f}  loss {numbers['loss']:.3f}, {count} examples"

    def by_class(self) -> Mapping[str, float]:
        return {f"F1/{rates.name}": rates.F1 for rates in self.report.classes if rates.num_examples}

    def to_json(self) -> dict[str, Any]:
        milliseconds = {"network": self.milliseconds}
        return {
            "milliseconds": milliseconds,
            **self.report.to_json(),
            "numbers": numbers_to_json(self.numbers),
        }


def evaluate_classes(
    probabilities: Probabilities, labels: Ints, classes: Sequence[str]
) -> ClassificationReport:
    """Measure predictions against `labels` (N,), indices of `classes`. Of equal classes the first wins."""
    assert probabilities.shape == (len(labels), len(classes)), probabilities.shape
    if broken := int((~np.isfinite(probabilities).all(axis=1)).sum()):
        raise diverged(f"the network's predictions for {broken} of {len(labels)} examples are not finite")
    predicted = probabilities.argmax(axis=1)
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    rates = _class_rates(confusion, classes)
    counted = [rate for rate in rates if rate.num_examples]
    means = {n: mean_defined([getattr(rate, n) for rate in counted]) for n in ("precision", "recall", "F1")}
    bins = _calibration(probabilities.max(axis=1), predicted == labels)
    return ClassificationReport(
        numbers=_numbers(probabilities, labels) | means | {"ECE": _calibration_error(bins)},
        classes=rates,
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        calibration=bins,
    )


def _numbers(probabilities: Probabilities, labels: Ints) -> dict[str, float]:
    num_classes = probabilities.shape[1]
    true = probabilities[np.arange(len(labels)), labels]
    tied_before = (probabilities == true[:, None]) & (np.arange(num_classes) < labels[:, None])
    # Of the true class; 0 is the likeliest.
    rank = ((probabilities > true[:, None]) | tied_before).sum(axis=1)
    numbers = {"accuracy": _mean(rank == 0)}
    if num_classes > _TOP:
        numbers["accuracy5"] = _mean(rank < _TOP)
    # A probability may be rounded to just above 1, whose negative logarithm is below 0.
    numbers["loss"] = _mean(-np.log(np.clip(true.astype(np.float64), _MIN_PROBABILITY, 1.0)))
    return numbers


def _class_rates(confusion: Ints, classes: Sequence[str]) -> tuple[ClassRates, ...]:
    correct, num_predicted, num_true = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    precision, recall = (
        np.divide(correct, num, out=np.zeros(len(classes)), where=num > 0).tolist()
        for num in (num_predicted, num_true)
    )
    return tuple(
        ClassRates(name=name, num_examples=num, precision=p, recall=r, F1=f1(p, r))
        for name, num, p, r in zip(classes, num_true.tolist(), precision, recall, strict=True)
    )


def _calibration(confidence: Probabilities, correct: Bools) -> tuple[CalibrationBin, ...]:
    """Return the bins; a bin includes its upper edge, not its lower one."""
    wide = confidence.astype(np.float64)
    index = np.clip(np.ceil(wide * NUM_BINS).astype(np.int64) - 1, 0, NUM_BINS - 1)
    count = np.bincount(index, minlength=NUM_BINS)
    at_least_one = np.maximum(count, 1)
    means = np.bincount(index, weights=wide, minlength=NUM_BINS) / at_least_one
    shares = np.bincount(index, weights=correct.astype(np.float64), minlength=NUM_BINS) / at_least_one
    return tuple(
        CalibrationBin(count=n, confidence=mean, accuracy=share)
        for n, mean, share in zip(count.tolist(), means.tolist(), shares.tolist(), strict=True)
    )


def _calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """Return the mean over the examples of |accuracy - confidence| of their bin; -1 without examples."""
    total = sum(b.count for b in bins)
    return sum(b.count * abs(b.accuracy - b.confidence) for b in bins) / total if total else -1.0


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if values.size else -1.0
