"""Finds labels that are likely wrong by confident learning (Northcutt, Jiang and Chuang, JAIR 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Ints
from boxcrew.evaluate.classification import Probabilities

_Array = npt.NDArray[np.float64]

_ROUNDING = 1e-9  # the mean of equal numbers may come out above them


@dataclass(frozen=True, kw_only=True)
class LabelNoise:
    """An estimate of wrong labels, not proof: where classes overlap, ambiguous examples are counted too."""

    rate: float  # 0..1, the share of the labels that are estimated to be wrong
    suspects: tuple[int, ...]  # indices of labels to check, the likeliest to be wrong first


def label_noise(probabilities: Probabilities, labels: Ints) -> LabelNoise:
    """Estimate which of the `labels` (N,) are wrong.

    `probabilities` must be predicted by cross-validation: a network repeats wrong labels that it was trained
    on. The networks must know the classes: to an untrained one, most labels seem wrong.
    """
    assert len(probabilities) == len(labels), (len(probabilities), len(labels))
    wide = probabilities.astype(np.float64)
    joint = _calibrated(_confident_joint(wide, labels), labels)
    suspected = _suspected(wide, labels, joint)
    margins = _margins(wide, labels)[suspected]
    return LabelNoise(
        rate=float(1 - np.trace(joint) / len(labels)) if len(labels) else 0.0,
        suspects=tuple(np.flatnonzero(suspected)[np.argsort(margins, kind="stable")].tolist()),
    )


def surely_contradicted(probabilities: Probabilities, labels: Ints) -> float:
    """Return the share of labels that contradict the prediction, among the most confident quarter.

    This separates wrong labels from classes that overlap: overlap makes unconfident predictions wrong, while
    a wrong label meets a confident prediction as often as any other. Only the order of confidences counts, so
    they need no calibration.
    """
    confidence = probabilities.max(axis=1)
    highest = confidence >= np.quantile(confidence, 0.75)  # with all that equal the quantile
    return float((probabilities.argmax(axis=1) != labels)[highest].mean())


def _confident_joint(probabilities: _Array, labels: Ints) -> Ints:
    """Return counts (C, C) (equation 1): rows are labels, columns the classes that examples confidently are.

    An example confidently is of a class if its probability reaches the mean of the examples that are labeled
    so (equation 2); of several such classes, the likeliest.
    """
    num_classes = probabilities.shape[1]
    labeled = probabilities[np.arange(len(labels)), labels]
    sizes = np.bincount(labels, minlength=num_classes)
    sums = np.bincount(labels, weights=labeled, minlength=num_classes)
    thresholds = np.divide(sums, sizes, out=np.full(num_classes, np.inf), where=sizes > 0) - _ROUNDING
    reached = probabilities >= thresholds
    guess = np.where(reached, probabilities, -1.0).argmax(axis=1)
    confident = reached.any(axis=1)
    joint = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(joint, (labels[confident], guess[confident]), 1)
    return joint


def _calibrated(joint: Ints, labels: Ints) -> _Array:
    """Return the counts scaled (equation 3) so that each row adds up to the number of labels of its class.

    Labels of a class without counts are taken to be right.
    """
    sizes = np.bincount(labels, minlength=len(joint))
    totals = joint.sum(axis=1, keepdims=True)
    shares = np.divide(joint, totals, out=np.eye(len(joint)), where=totals > 0)
    scaled: _Array = shares * sizes[:, None]
    return scaled


def _suspected(probabilities: _Array, labels: Ints, joint: _Array) -> Bools:
    """Return which labels (N,) are suspect, by noise rate (section 3.2).

    For each pair of classes, these are as many as the joint estimates to be confused, those with the greatest
    lead of the other class's probability.
    """
    suspected = np.zeros(len(labels), dtype=np.bool_)
    counts = np.rint(joint).astype(np.int64)
    np.fill_diagonal(counts, 0)
    for label in np.flatnonzero(counts.any(axis=1)):
        examples = np.flatnonzero(labels == label)
        for rival in np.flatnonzero(counts[label]):
            lead = probabilities[examples, rival] - probabilities[examples, label]
            worst = np.argsort(-lead, kind="stable")[: counts[label, rival]]
            suspected[examples[worst[lead[worst] > 0]]] = True
    return suspected


def _margins(probabilities: _Array, labels: Ints) -> _Array:
    """Return (N,) -1..1: the probability of the label minus that of the likeliest other class."""
    rows = np.arange(len(labels))
    others = probabilities.copy()
    others[rows, labels] = 0.0
    margins: _Array = probabilities[rows, labels] - others.max(axis=1, initial=0.0)
    return margins
