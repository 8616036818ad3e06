"""The summary on the doctor's page: what is fine in a data set, and what to do first."""

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
"""How many recommendations are shown as the first things to do."""

GOOD_COVERAGE = 0.98
"""The share of boxes that default boxes should match well; above, nothing is recommended."""

_IMAGE_KINDS: frozenset[Kind] = frozenset(
    {"missing-file", "not-an-image", "unreadable-image", "truncated-image", "image-bomb"}
)
_SIZE_ADVICE = frozenset({"crowded-images", "elongated-boxes", "mixed-sizes", "mixed-shapes"})
_BALANCED = 5.0  # ratio of boxes of the commonest class to the rarest, up to which classes are balanced
_FEW = 0.01  # share of boxes or images up to which a problem matters less than other advice
_MANY = 0.05  # share of images above which losing them matters more than anything else
_SERIOUS = 100.0  # weight of a recommendation that must not be ignored

Section = Literal["problems", "classes", "boxes", "coverage", "duplicates", "suspects"]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A recommendation about the data set."""

    weight: float  # higher is more urgent; advice from statistics has 50 or less
    text: str
    section: Section  # of the page that shows it


@dataclass(frozen=True, kw_only=True)
class DoctorSummary:
    """The headline, what is fine, and what to do."""

    title: str
    fine: tuple[str, ...]
    tasks: tuple[Recommendation, ...]  # the most urgent first

    @property
    def serious(self) -> bool:
        return bool(self.tasks) and self.tasks[0].weight >= _SERIOUS


def summarize(diagnosis: Diagnosis) -> DoctorSummary:
    tasks = sorted(_tasks(diagnosis), key=lambda task: -task.weight)
    if not tasks:
        title = "Ready to train."
    elif len(tasks) == 1:
        title = "Ready to train; one thing is worth doing first."
    else:
        title = f"Ready to train; {_number(min(MOST, len(tasks)))} things are worth doing first."
    if tasks and tasks[0].weight >= _SERIOUS:
        title = "A part of the data set cannot be used. Fix that first."
    return DoctorSummary(title=title, fine=tuple(_fine(diagnosis)), tasks=tuple(tasks))


def _number(count: int) -> str:
    return ("no", "one", "two", "three")[count]


def _tasks(diagnosis: Diagnosis) -> Iterator[Recommendation]:
    yield from _tasks_about_problems(diagnosis)
    if diagnosis.near_duplicates:
        pairs = len(diagnosis.near_duplicates)
        text = (
            f"{counted(pairs, 'image looks', 'images look')} nearly the same as one of another "
            "split, so scores will look better than they are. Keep each pair in one split."
        )
        measured = sum(split.num_images for name, split in diagnosis.statistics.items() if name != "train")
        many = pairs > _FEW * measured
        yield Recommendation(weight=80 if many else 46.5, text=text, section="duplicates")
    anchor_coverage = diagnosis.anchor_coverage
    if anchor_coverage is not None and anchor_coverage.share < GOOD_COVERAGE:
        yield Recommendation(
            weight=60 + 100 * (GOOD_COVERAGE - anchor_coverage.share),
            text=anchor_coverage.advice,
            section="coverage",
        )
    if diagnosis.suspects:
        text = (
            f"The trained detector contradicts {counted(len(diagnosis.suspects), 'label', 'labels')}. "
            "Check them one by one."
        )
        yield Recommendation(weight=75, text=text, section="suspects")
    for rank, advice in enumerate(diagnosis.advice):
        section: Section = "boxes" if advice.kind in _SIZE_ADVICE else "classes"
        yield Recommendation(weight=50 - rank, text=advice.text, section=section)


def _tasks_about_problems(diagnosis: Diagnosis) -> Iterator[Recommendation]:
    problems = diagnosis.source.problems
    leaks = sum(problem.kind == "leak" for problem in problems)
    if leaks:
        text = (
            f"{counted(leaks, 'image is', 'images are')} in two splits. Remove the copies from one of them."
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
            f"({', '.join(kinds)}{others}). Fix or delete them."
        )
        many = left_out.total() > _FEW * diagnosis.num_boxes
        yield Recommendation(weight=55 if many else 45.5, text=text, section="problems")
    repaired = sum(problem.action == "repaired" for problem in rest)
    if repaired:
        text = (
            f"{counted(repaired, 'box was', 'boxes were')} repaired in memory. "
            "Check that the repairs are what the labels meant."
        )
        yield Recommendation(weight=20, text=text, section="problems")


def _fine(diagnosis: Diagnosis) -> Iterator[str]:
    kinds = {problem.kind for problem in diagnosis.source.problems}
    if not kinds & _IMAGE_KINDS:
        yield f"All {diagnosis.num_images:,} images can be read."
    if not any(kind.startswith("box-") for kind in kinds):
        yield f"All {diagnosis.num_boxes:,} boxes are inside their images and have an area."
    if "leak" not in kinds and len(diagnosis.statistics) > 1:
        duplicates = "" if diagnosis.near_duplicates else ", and none looks like one of another split"
        yield f"No image is in two splits{duplicates}."
    yield from _fine_about_classes(diagnosis)
    anchor_coverage = diagnosis.anchor_coverage
    if anchor_coverage is not None and anchor_coverage.share >= GOOD_COVERAGE:
        yield (
            f"The default boxes of {diagnosis.detector.name} at {anchor_coverage.size.describe()} match "
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
