"""What an evaluation is given, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from boxcrew.core.types import Detections, Target


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluatedImage:
    """One evaluated image: the truth and what was found, both in pixels of the original image."""

    key: str
    width: int
    height: int
    target: Target
    found: Detections  # on the CPU


@dataclass(frozen=True, kw_only=True)
class ClassRates:
    """One class's part of an evaluation. A rate is 0 where there is nothing to divide by."""

    name: str
    num_examples: int
    precision: float
    recall: float
    F1: float


@dataclass(frozen=True, kw_only=True)
class ClassScore:
    """One class's part of an evaluation. An AP is None where the set has no object that it counts."""

    name: str
    num_objects: int  # difficult ones too, crowds not
    num_images: int  # with at least one of these objects
    AP: float | None  # over IoU 0.50:0.95
    AP50: float | None
    AP50_voc07: float | None
    AP50_voc12: float | None
    precision: float  # at IoU 0.5 and the score threshold of the best mean F1; 0 where there is no object
    recall: float
    F1: float

    @property
    def rates(self) -> ClassRates:
        return ClassRates(
            name=self.name,
            num_examples=self.num_objects,
            precision=self.precision,
            recall=self.recall,
            F1=self.F1,
        )


@dataclass(frozen=True, kw_only=True)
class Curves:
    """How each class trades precision for recall at IoU 0.5, at 101 places of two grids.

    One curve for each class, in the order of the classes; None where the class has no object.
    """

    precision: tuple[tuple[float, ...] | None, ...]
    """At recall 0, 0.01, ... 1: the best precision at that recall or a higher one."""
    precision_at: tuple[tuple[float, ...] | None, ...]
    """At score threshold 0, 0.01, ... 1; 0 where nothing is found any more."""
    recall_at: tuple[tuple[float, ...] | None, ...]
    """At score threshold 0, 0.01, ... 1."""

    def f1_at(self) -> tuple[tuple[float, ...] | None, ...]:
        """At score threshold 0, 0.01, ... 1."""
        pairs = zip(self.precision_at, self.recall_at, strict=True)
        return tuple(None if p is None or r is None else tuple(map(f1, p, r)) for p, r in pairs)


@dataclass(frozen=True, kw_only=True)
class DetectionReport:
    """All that is measured about a detector on one split. `evaluation.json` of a run is its JSON."""

    numbers: Mapping[str, float]
    """The 12 of COCO under their usual names (AP AP50 AP75 APs APm APl AR1 AR10 AR100 ARs ARm ARl),
    `AP50_voc07` (11 points) and `AP50_voc12` (area), and `precision recall F1 threshold`, means over the
    classes that have objects. -1 where undefined."""
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    """(C+1, C+1): rows the truth, columns the found, last is background; at IoU 0.5 and the threshold."""
    curves: Curves

    def to_json(self) -> dict[str, Any]:
        """What `json.dump` takes; all numbers are finite."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """From what `to_json` gave, before or after a way through a file."""
        curves = {
            name: tuple(None if curve is None else tuple(curve) for curve in data["curves"][name])
            for name in ("precision", "precision_at", "recall_at")
        }
        return cls(
            numbers=dict(data["numbers"]),
            classes=tuple(ClassScore(**score) for score in data["classes"]),
            confusion=tuple(tuple(row) for row in data["confusion"]),
            curves=Curves(**curves),
        )


def f1(precision: float, recall: float) -> float:
    """The harmonic mean; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def mean_defined(values: Sequence[float | None]) -> float:
    """The mean of those that are not None; -1, COCO's word for undefined, where all are."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else -1.0
