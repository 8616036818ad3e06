"""The doctor's headline: what is fine in a data set, and what to do first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from boxcrew.data.checks.problem import Kind
from boxcrew.report.doctor.charts import percent
from boxcrew.report.doctor.problems import MEANINGS
from boxcrew.report.doctor.report import Diagnosis, counted

MOST = 3
"""Things to do that a headline names."""

REACHED = 0.98
"""A share of boxes that the default boxes match well from which on nothing need be done."""

_IMAGE_KINDS: frozenset[Kind] = frozenset(
    {"missing-file", "not-an-image", "unreadable-image", "truncated-image", "image-bomb"}
)
_ABOUT_SIZES = frozenset({"crowded-images", "elongated-boxes", "mixed-sizes", "mixed-shapes"})  # of advice
_BALANCED = 5.0  # times as many boxes of the commonest class as of the rarest
_FEW = 0.01  # a share of boxes or images, up to which what befalls them matters less than other advice
_MANY = 0.05  # a share of the images, from which on losing them matters more than anything else
_SERIOUS = 100.0  # a weight

Section = Literal["problems", "classes", "boxes", "reach", "duplicates", "suspects"]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Something to do about the set."""

    weight: float  # the heavier, the more urgent; what counting advises has 50 and less
    text: str
    section: Section  # of the page that shows it


@dataclass(frozen=True, kw_only=True)
class Verdict:
    title: str
    fine: tuple[str, ...]
    tasks: tuple[Recommendation, ...]  # the most urgent first

    @property
    def serious(self) -> bool:
        return bool(self.tasks) and self.tasks[0].weight >= _SERIOUS


def verdict(diagnosis: Diagnosis) -> Verdict:
    tasks = sorted(_tasks(diagnosis), key=lambda task: -task.weight)
    if not tasks:
        title = "Nothing stands in the way of training."
    elif len(tasks) == 1:
        title = "Ready to train; one thing is worth doing first."
    else:
        title = f"Ready to train; {_number(min(MOST, len(tasks)))} things are worth doing first."
    if tasks and tasks[0].weight >= _SERIOUS:
        title = "A part of the set cannot be used. Mend that first."
    return Verdict(title=title, fine=tuple(_fine(diagnosis)), tasks=tuple(tasks))


def _number(count: int) -> str:
    return ("no", "one", "two", "three")[count]


def _tasks(diagnosis: Diagnosis) -> Iterator[Recommendation]:
    yield from _tasks_about_problems(diagnosis)
    if diagnosis.near_duplicates:
        pairs = len(diagnosis.near_duplicates)
        text = (
            f"{counted(pairs, 'image looks', 'images look')} nearly the same as one of another "
            "split: scores will look better than they are. Keep each pair in one split."
        )
        measured = sum(split.num_images for name, split in diagnosis.statistics.items() if name != "train")
        many = pairs > _FEW * measured
        yield Recommendation(weight=80 if many else 46.5, text=text, section="duplicates")
    anchor_coverage = diagnosis.anchor_coverage
    if anchor_coverage is not None and anchor_coverage.share < REACHED:
        yield Recommendation(
            weight=60 + 100 * (REACHED - anchor_coverage.share), text=anchor_coverage.advice, section="reach"
        )
    if diagnosis.suspects:
        text = (
            f"{counted(len(diagnosis.suspects), 'place', 'places')} where labels and trained detector "
            "disagree. Look at them one by one."
        )
        yield Recommendation(weight=75, text=text, section="suspects")
    for place, advice in enumerate(diagnosis.advice):
        section: Section = "boxes" if advice.kind in _ABOUT_SIZES else "classes"
        yield Recommendation(weight=50 - place, text=advice.text, section=section)


def _tasks_about_problems(diagnosis: Diagnosis) -> Iterator[Recommendation]:
    problems = diagnosis.source.problems
    leaks = sum(problem.kind == "leak" for problem in problems)
    if leaks:
        text = (
            f"{counted(leaks, 'image stands', 'images stand')} in two splits. "
            "Take the copies out of one of them."
        )
        yield Recommendation(weight=90, text=text, section="problems")
    broken = sum(problem.kind in _IMAGE_KINDS for problem in problems)
    if broken:
        share = broken / (broken + diagnosis.num_images)
        text = f"{counted(broken, 'image', 'images')} cannot be read. Restore or remove them."
        yield Recommendation(weight=_SERIOUS if share > _MANY else 70, text=text, section="problems")
    rest = [p for p in problems if p.kind != "leak" and p.kind not in _IMAGE_KINDS]
    left_out = Counter(problem.kind for problem in rest if problem.action == "left out")
    if left_out:
        kinds = [f"{MEANINGS[kind][:1].lower()}{MEANINGS[kind][1:]}" for kind, _ in left_out.most_common(2)]
        others = ", and others" if len(left_out) > len(kinds) else ""
        text = (
            f"{counted(left_out.total(), 'annotation', 'annotations')} had to be left out "
            f"({', '.join(kinds)}{others}). Mend or delete them."
        )
        many = left_out.total() > _FEW * diagnosis.num_boxes
        yield Recommendation(weight=55 if many else 45.5, text=text, section="problems")
    repaired = sum(problem.action == "repaired" for problem in rest)
    if repaired:
        text = (
            f"{counted(repaired, 'box was', 'boxes were')} repaired in memory. "
            "Check that the tool that wrote them means what is shown."
        )
        yield Recommendation(weight=20, text=text, section="problems")


def _fine(diagnosis: Diagnosis) -> Iterator[str]:
    kinds = {problem.kind for problem in diagnosis.source.problems}
    if not kinds & _IMAGE_KINDS:
        yield f"All {diagnosis.num_images:,} images can be read."
    if not any(kind.startswith("box-") for kind in kinds):
        yield f"All {diagnosis.num_boxes:,} boxes lie in their images and have an area."
    if "leak" not in kinds and len(diagnosis.statistics) > 1:
        alike = "" if diagnosis.near_duplicates else ", and none looks like one of another split"
        yield f"No image stands in two splits{alike}."
    yield from _fine_about_classes(diagnosis)
    anchor_coverage = diagnosis.anchor_coverage
    if anchor_coverage is not None and anchor_coverage.share >= REACHED:
        yield (
            f"The default boxes of {diagnosis.detector.name} at {anchor_coverage.size} px match "
            f"{percent(anchor_coverage.share)} of the boxes well."
        )
    if diagnosis.suspects == ():
        yield "The trained detector contradicts no label of a class that it knows well."


def _fine_about_classes(diagnosis: Diagnosis) -> Iterator[str]:
    splits = [diagnosis.statistics[name] for name in ("train", "val") if name in diagnosis.statistics]
    if all(min(split.boxes_by_class.values(), default=0) > 0 for split in splits):
        yield f"Every class has boxes in {' and '.join(('train', 'val')[: len(splits)])}."
    counts = diagnosis.statistics["train"].boxes_by_class.values()
    if len(counts) > 1 and 0 < max(counts) <= _BALANCED * min(counts):
        times = max(counts) / min(counts)
        yield f"Classes are balanced: the commonest has {times:.1f} times the boxes of the rarest."
