"""What an evaluation is given, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boxcrew.core.types import Detections, Target


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """One evaluated image: the truth and what was found, both in pixels of the original image."""

    key: str
    width: int
    height: int
    target: Target
    found: Detections  # on the CPU


@dataclass(frozen=True, kw_only=True)
class ClassScore:
    """One class's part of an evaluation. AP is None where the set has no object of the class."""

    name: str
    num_objects: int
    num_images: int
    AP: float | None  # over IoU 0.50:0.95
    AP50: float | None
    precision: float  # at IoU 0.5 and the score threshold of the best mean F1
    recall: float
    F1: float


@dataclass(frozen=True, kw_only=True)
class DetectionReport:
    """All that is measured about a detector on one split."""

    numbers: Mapping[str, float]
    """The 12 of COCO under their usual names (AP AP50 AP75 APs APm APl AR1 AR10 AR100 ARs ARm ARl; -1
    where undefined), `AP50_voc07` (11 points) and `AP50_voc12` (area), `precision recall F1 threshold`."""
    classes: Sequence[ClassScore]
    confusion: Sequence[Sequence[int]]  # (C+1, C+1): rows the truth, columns the found, last is background
    curves: Mapping[str, object]  # what plots need: see evaluate/curves.py
