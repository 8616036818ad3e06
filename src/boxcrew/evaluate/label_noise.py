"""Which labels are likely wrong: confident learning (Northcutt, Jiang and Chuang, JAIR 2021)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Ints
from boxcrew.evaluate.classification import Probabilities

_Array = npt.NDArray[np.float64]

_ROUNDING = 1e-9  # the mean of equal numbers may come out above them


@dataclass(frozen=True, kw_only=True)
class LabelNoise:
    """An estimate, not proof: where classes overlap, what nobody can tell apart is counted too."""

    rate: float  # 0..1, the share of the labels that are estimated to be wrong
    suspects: tuple[int, ...]  # places of the labels to look at, the likeliest to be wrong first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def label_noise(probabilities: Probabilities, labels: Ints) -> LabelNoise:
    """Of given `labels` (N,), from what networks say that have not learnt from the example they judge
    (cross-validation): one that has learnt a wrong label repeats it. They must have learnt the classes: to
    one that knows nothing, most labels seem wrong.
    """
    assert len(probabilities) == len(labels), (len(probabilities), len(labels))
    wide = probabilities.astype(np.float64)
    joint = _calibrated(_confident_joint(wide, labels), labels)
    suspected = _pruned(wide, labels, joint)
    margins = _margins(wide, labels)[suspected]
    return LabelNoise(
        rate=float(1 - np.trace(joint) / len(labels)) if len(labels) else 0.0,
        suspects=tuple(np.flatnonzero(suspected)[np.argsort(margins, kind="stable")].tolist()),
    )


def surely_contradicted(probabilities: Probabilities, labels: Ints) -> float:
    """The share of the labels, among those of the surest quarter of the answers, that contradict them.

    It tells wrong labels from classes that overlap: these make unsure answers wrong, while a wrong label
    stands beside a sure answer as often as beside any. No calibration is needed: only the order counts.
    """
    sureness = probabilities.max(axis=1)
    surest = sureness >= np.quantile(sureness, 0.75)  # all of those that are equally sure
    return float((probabilities.argmax(axis=1) != labels)[surest].mean())


def _confident_joint(probabilities: _Array, labels: Ints) -> Ints:
    """(C, C) counts (equation 1): rows the given label, columns the class that the example is confidently of.

    It is confidently of a class if its probability reaches the mean of those that are labelled so
    (equation 2), and of the likeliest of these classes where there are several.
    """
    num_classes = probabilities.shape[1]
    own = probabilities[np.arange(len(labels)), labels]
    sizes = np.bincount(labels, minlength=num_classes)
    sums = np.bincount(labels, weights=own, minlength=num_classes)
    thresholds = np.divide(sums, sizes, out=np.full(num_classes, np.inf), where=sizes > 0) - _ROUNDING
    reached = probabilities >= thresholds
    guess = np.where(reached, probabilities, -1.0).argmax(axis=1)
    confident = reached.any(axis=1)
    joint = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(joint, (labels[confident], guess[confident]), 1)
    return joint


def _calibrated(joint: Ints, labels: Ints) -> _Array:
    """The counts stretched (equation 3) so that a row has as many as there are labels of the class; where
    nothing is known of a class, its labels are taken to be right.
    """
    sizes = np.bincount(labels, minlength=len(joint))
    totals = joint.sum(axis=1, keepdims=True)
    shares = np.divide(joint, totals, out=np.eye(len(joint)), where=totals > 0)
    stretched: _Array = shares * sizes[:, None]
    return stretched


def _pruned(probabilities: _Array, labels: Ints, joint: _Array) -> Bools:
    """(N,) the suspects, by noise rate (section 3.2): of each pair of classes as many as are estimated to be
    mistaken one for the other, those that the networks find much likelier to be of the other class.
    """
    suspected = np.zeros(len(labels), dtype=np.bool_)
    counts = np.rint(joint).astype(np.int64)
    np.fill_diagonal(counts, 0)
    for given in np.flatnonzero(counts.any(axis=1)):
        mine = np.flatnonzero(labels == given)
        for other in np.flatnonzero(counts[given]):
            lead = probabilities[mine, other] - probabilities[mine, given]
            worst = np.argsort(-lead, kind="stable")[: counts[given, other]]
            suspected[mine[worst[lead[worst] > 0]]] = True
    return suspected


def _margins(probabilities: _Array, labels: Ints) -> _Array:
    """(N,) -1..1: how much likelier the given class is than the likeliest of the others."""
    places = np.arange(len(labels))
    others = probabilities.copy()
    others[places, labels] = 0.0
    margins: _Array = probabilities[places, labels] - others.max(axis=1, initial=0.0)
    return margins
