"""How well classes are told apart: numbers of the whole, and of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import ModelError
from boxcrew.core.types import Bools, Ints
from boxcrew.evaluate.detection.metric import ClassRates, f1, mean_defined

Probabilities = npt.NDArray[np.floating[Any]]
"""(N, C): what a network says about N examples; rows add up to 1."""

NUM_BINS = 15
"""Parts of 0..1, all of one width, in which confidence is held against accuracy (Guo et al. 2017)."""

_TOP = 5
_LEAST = float(np.finfo(np.float32).tiny)  # as a probability that was rounded to 0 counts: 87 nats


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """The examples whose greatest probability lies in one part of 0..1. Means are 0 where there are none."""

    count: int
    confidence: float  # the mean of these probabilities
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class ClassificationReport:
    """All that is measured about a classifier on one split."""

    numbers: Mapping[str, float]
    """`accuracy`, `accuracy5` (the truth is among the five likeliest; only where there are more classes),
    `loss` (mean negative log-likelihood, nats), `precision recall F1` (means over the classes that have
    examples) and `ECE` (expected calibration error). -1 where undefined."""
    classes: tuple[ClassRates, ...]
    confusion: tuple[tuple[int, ...], ...]  # (C, C): rows the truth, columns the found
    calibration: tuple[CalibrationBin, ...]  # NUM_BINS, the least confidence first

    def to_json(self) -> dict[str, Any]:
        """What `json.dump` takes; all numbers are finite."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """From what `to_json` gave, before or after a way through a file."""
        return cls(
            numbers=dict(data["numbers"]),
            classes=tuple(ClassRates(**rates) for rates in data["classes"]),
            confusion=tuple(tuple(row) for row in data["confusion"]),
            calibration=tuple(CalibrationBin(**part) for part in data["calibration"]),
        )


def evaluate_classes(
    probabilities: Probabilities, labels: Ints, classes: Sequence[str]
) -> ClassificationReport:
    """Of examples with `labels` (N,), places in `classes`. Of equal probabilities the first is the found."""
    assert probabilities.shape == (len(labels), len(classes)), (
        probabilities.shape,
        len(labels),
        len(classes),
    )
    _check_finite(probabilities)
    found = probabilities.argmax(axis=1)
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(confusion, (labels, found), 1)
    rates = _class_rates(confusion, classes)
    bins = _calibration(probabilities.max(axis=1), found == labels)
    return ClassificationReport(
        numbers=_numbers(probabilities, labels) | _means(rates) | {"ECE": _calibration_error(bins)},
        classes=rates,
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        calibration=bins,
    )


def _check_finite(probabilities: Probabilities) -> None:
    broken = int((~np.isfinite(probabilities).all(axis=1)).sum())
    if broken:
        raise ModelError(
            f"the network's answers to {broken} of {len(probabilities)} examples are not numbers",
            advice="training has diverged: a lower optim.rate=, or optim.clip=",
        )


def _numbers(probabilities: Probabilities, labels: Ints) -> dict[str, float]:
    num_classes = probabilities.shape[1]
    true = probabilities[np.arange(len(labels)), labels]
    tied_before = (probabilities == true[:, None]) & (np.arange(num_classes) < labels[:, None])
    place = ((probabilities > true[:, None]) | tied_before).sum(axis=1)  # of the truth, 0 the likeliest
    numbers = {"accuracy": _mean(place == 0)}
    if num_classes > _TOP:
        numbers["accuracy5"] = _mean(place < _TOP)
    # A probability may be rounded to just above 1, and its negative logarithm would be no loss.
    numbers["loss"] = _mean(-np.log(np.clip(true.astype(np.float64), _LEAST, 1.0)))
    return numbers


def _class_rates(confusion: Ints, classes: Sequence[str]) -> tuple[ClassRates, ...]:
    right, num_found, num_true = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
    precision = np.divide(right, num_found, out=np.zeros(len(classes)), where=num_found > 0)
    recall = np.divide(right, num_true, out=np.zeros(len(classes)), where=num_true > 0)
    return tuple(
        ClassRates(name=name, num_examples=num, precision=p, recall=r, F1=f1(p, r))
        for name, num, p, r in zip(
            classes, num_true.tolist(), precision.tolist(), recall.tolist(), strict=True
        )
    )


def _means(rates: Sequence[ClassRates]) -> dict[str, float]:
    counted = [one for one in rates if one.num_examples]
    return {
        "precision": mean_defined([one.precision for one in counted]),
        "recall": mean_defined([one.recall for one in counted]),
        "F1": mean_defined([one.F1 for one in counted]),
    }


def _calibration(confidence: Probabilities, right: Bools) -> tuple[CalibrationBin, ...]:
    """A part has its upper edge, not its lower one."""
    wide = confidence.astype(np.float64)
    part = np.clip(np.ceil(wide * NUM_BINS).astype(np.int64) - 1, 0, NUM_BINS - 1)
    count = np.bincount(part, minlength=NUM_BINS)
    at_least_one = np.maximum(count, 1)
    means = np.bincount(part, weights=wide, minlength=NUM_BINS) / at_least_one
    shares = np.bincount(part, weights=right.astype(np.float64), minlength=NUM_BINS) / at_least_one
    return tuple(
        CalibrationBin(count=n, confidence=mean, accuracy=share)
        for n, mean, share in zip(count.tolist(), means.tolist(), shares.tolist(), strict=True)
    )


def _calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """How far accuracy is from confidence, in the mean over the examples."""
    total = sum(part.count for part in bins)
    if not total:
        return -1.0
    return sum(part.count * abs(part.accuracy - part.confidence) for part in bins) / total


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if values.size else -1.0
