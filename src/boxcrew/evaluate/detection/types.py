"""The types of a detector's evaluation: the images that go in and the report that comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boxcrew.core.types import Detections, Target
from boxcrew.evaluate.evaluation import ClassRates, EvaluationReport, f1


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluatedImage:
    """One image's targets and detections, both in pixels of the original image."""

    key: str
    width: int
    height: int
    target: Target
    detections: Detections  # on the CPU


@dataclass(frozen=True, kw_only=True)
class ClassScore:
    """The scores of one class of a detector. An AP is None if the set has no object that it counts."""

    name: str
    num_objects: int  # with difficult ones, without crowds
    num_images: int  # with at least one of these objects
    AP: float | None  # over IoU 0.50:0.95
    AP50: float | None
    AP50_voc07: float | None
    AP50_voc12: float | None
    precision: float  # at IoU 0.5 and the threshold of the best mean F1; 0 if there is no object
    recall: float
    F1: float

    @property
    def rates(self) -> ClassRates:
        rates = {"precision": self.precision, "recall": self.recall, "F1": self.F1}
        return ClassRates(name=self.name, num_examples=self.num_objects, **rates)


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Precision and recall of each class at IoU 0.5, at the 101 points 0, 0.01, ... 1 of recall or of score.

    One curve for each class, in the order of the classes; None if the class has no object.
    """

    precision: tuple[tuple[float, ...] | None, ...]
    """By recall: the best precision at that recall or a higher one."""
    precision_at: tuple[tuple[float, ...] | None, ...]
    """By score threshold; 0 where no detection is left."""
    recall_at: tuple[tuple[float, ...] | None, ...]
    """By score threshold."""

    def f1_at(self) -> tuple[tuple[float, ...] | None, ...]:
        """Return F1 by score threshold."""
        pairs = zip(self.precision_at, self.recall_at, strict=True)
        return tuple(None if p is None or r is None else tuple(map(f1, p, r)) for p, r in pairs)


@dataclass(frozen=True, kw_only=True)
class DetectionReport(EvaluationReport):
    """All that is measured about a detector on one split. A run stores its JSON as `evaluation.json`."""

    numbers: Mapping[str, float]
    """The 12 of COCO under their usual names (AP AP50 AP75 APs APm APl AR1 AR10 AR100 ARs ARm ARl),
    `AP50_voc07` (11 points) and `AP50_voc12` (area), and `precision recall F1 threshold`, means over the
    classes that have objects. -1 where undefined."""
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    """(C+1, C+1): rows are true classes, columns predicted ones, the last is background; at IoU 0.5 and the
    threshold."""
    curves: Curves
