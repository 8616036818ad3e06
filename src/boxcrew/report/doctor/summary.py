"""The summary on the doctor's page: what is fine in a data set, and what to do first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from boxcrew.data.checks.problem import ProblemKind
from boxcrew.report.doctor.charts import percent
from boxcrew.report.doctor.problems import MEANINGS
from boxcrew.report.doctor.report import Diagnosis, with_plural

MOST = 3  # recommendations that are shown as the first things to do
GOOD_COVERAGE = 0.98  # share of boxes that the detector should match well; above, nothing is recommended
GOOD_PROPOSALS = 0.9  # share of boxes that proposals should cover; above, nothing is recommended

_IMAGE_KINDS: frozenset[ProblemKind] = frozenset(
    {"missing-file", "not-an-image", "unreadable-image", "truncated-image", "image-bomb"}
)
_SIZE_ADVICE = frozenset({"crowded-images", "elongated-boxes", "mixed-sizes", "mixed-shapes"})
_BALANCED = 5.0  # ratio of boxes of the commonest class to the rarest, up to which classes are balanced
_FEW = 0.01  # share of boxes or images up to which a problem matters less than other advice
_MANY = 0.05  # share of images above which losing them matters more than anything else
_SERIOUS = 100.0  # weight of a recommendation that must not be ignored

Section = Literal["problems", "classes", "boxes", "coverage", "duplicates", "suspects"]


class Recommendation(NamedTuple):
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
    title = "Ready to train."
    if tasks and tasks[0].weight >= _SERIOUS:
        title = "A part of the data set cannot be used. Fix that first."
    elif tasks:
        things = ("one thing is", "two things are", "three things are")[min(MOST, len(tasks)) - 1]
        title = f"Ready to train; {things} worth doing first."
    return DoctorSummary(title=title, fine=tuple(_fine(diagnosis)), tasks=tuple(tasks))


def _tasks(diagnosis: Diagnosis) -> Iterator[Recommendation]:
    yield from _tasks_about_problems(diagnosis)
    if pairs := len(diagnosis.near_duplicates):
        text = (
            f"{with_plural(pairs, 'image looks', 'images look')} nearly the same as one of another "
            "split, so scores will look better than they are. Keep each pair in one split."
        )
        measured = sum(split.num_images for name, split in diagnosis.statistics.items() if name != "train")
        yield Recommendation(80 if pairs > _FEW * measured else 46.5, text, "duplicates")
    coverage = diagnosis.anchor_coverage
    if coverage is not None and coverage.matched_fraction < GOOD_COVERAGE:
        # Below the causes of bad boxes, which may be the reason why they cannot be matched.
        weight = min(_SERIOUS, 60 + 100 * (GOOD_COVERAGE - coverage.matched_fraction))
        yield Recommendation(weight, coverage.advice, "coverage")
    proposals = diagnosis.proposal_coverage
    if proposals is not None and proposals.recall50 < GOOD_PROPOSALS:
        weight = min(_SERIOUS, 60 + 100 * (GOOD_PROPOSALS - proposals.recall50))
        yield Recommendation(weight, proposals.advice(), "coverage")
    if diagnosis.suspects:
        labels = with_plural(len(diagnosis.suspects), "label", "labels")
        text = f"The trained detector contradicts {labels}. Check them one by one."
        yield Recommendation(75, text, "suspects")
    for rank, advice in enumerate(diagnosis.advice):
        yield Recommendation(50 - rank, advice.text, "boxes" if advice.kind in _SIZE_ADVICE else "classes")


def _tasks_about_problems(diagnosis: Diagnosis) -> Iterator[Recommendation]:
    problems = diagnosis.source.problems
    for cause in (problem for problem in problems if problem.kind == "cause"):
        yield Recommendation(_SERIOUS + 1, f"{cause.message[:1].upper()}{cause.message[1:]}.", "problems")
    if leaks := sum(problem.kind == "leak" for problem in problems):
        images = with_plural(leaks, "image is", "images are")
        yield Recommendation(90, f"{images} in two splits. Remove the copies from one of them.", "problems")
    if broken := sum(problem.kind in _IMAGE_KINDS for problem in problems):
        share = broken / (broken + diagnosis.num_images)
        text = f"{with_plural(broken, 'image', 'images')} cannot be read. Restore or remove them."
        yield Recommendation(_SERIOUS if share > _MANY else 70, text, "problems")
    rest = [p for p in problems if p.kind != "leak" and p.kind not in _IMAGE_KINDS]
    if left_out := Counter(problem.kind for problem in rest if problem.action == "left out"):
        kinds = [f"{MEANINGS[kind][:1].lower()}{MEANINGS[kind][1:]}" for kind, _ in left_out.most_common(2)]
        others = ", and others" if len(left_out) > len(kinds) else ""
        text = (
            f"{with_plural(left_out.total(), 'annotation', 'annotations')} had to be left out "
            f"({', '.join(kinds)}{others}). Fix or delete them."
        )
        yield Recommendation(55 if left_out.total() > _FEW * diagnosis.num_boxes else 45.5, text, "problems")
    if repaired := sum(problem.action == "repaired" for problem in rest):
        boxes = with_plural(repaired, "box was", "boxes were")
        text = f"{boxes} repaired in memory. Check that the repairs are what the labels meant."
        yield Recommendation(20, text, "problems")


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
    coverage = diagnosis.anchor_coverage
    if coverage is not None and coverage.matched_fraction >= GOOD_COVERAGE:
        config = diagnosis.detector
        subject = f"The {config.learned_from} of {config.name} at {coverage.size.describe()}"
        yield f"{subject} match {percent(coverage.matched_fraction)} of the boxes well."
    proposals = diagnosis.proposal_coverage
    if proposals is not None and proposals.recall50 >= GOOD_PROPOSALS:
        yield f"Proposals cover {percent(proposals.recall50)} of the boxes (IoU 0.5)."
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
