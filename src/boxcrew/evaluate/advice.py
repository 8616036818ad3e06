"""Checks for the four common causes of bad training; each returns advice that says what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from boxcrew.core.types import Ints
from boxcrew.core.units import counted, format_count
from boxcrew.data.checks.problem import ACTIONS, MAX_IMBALANCE, Problem, ProblemKind
from boxcrew.evaluate.classification import Probabilities
from boxcrew.evaluate.detection.suspects import Suspect
from boxcrew.evaluate.evaluation import ClassRates, Report, is_measured
from boxcrew.evaluate.label_noise import LabelNoise, label_noise, surely_contradicted

Cause = Literal["missing features", "too complex", "imbalance", "noise"]

MAX_LINES, MAX_LINES_BEFORE = 3, 2
"""Lines of advice that a run shows on the screen in all, and before its first step: at least one is left for
what training brings to light."""

# Limits above which advice is given.
_PARAMETERS = 100.0  # for each example
_ACCURACY_GAP = 0.1
_AP_GAP = 0.2
_LOSS_GAP = 0.2  # nats
_LOSS_RATIO = 1.25  # and this many times as large: a small fraction of a large loss is no gap
_WITHOUT_GAIN, _STILL_FALLING = 3, 0.9  # evaluations without gain while the loss falls below this fraction
_STALLED = 5  # evaluations without gain, if the loss does not show progress
_RECALL_GAP, _MIN_EXAMPLES = 0.2, 3  # below the mean; of fewer examples, recall is chance
_NOISE = 0.02  # of the labels
_MIN_ACCURACY = 0.7  # of a network whose contradictions count
_CONTRADICTED = 0.05  # share of contradicted labels
_LABEL_KINDS, _MIN_SCORE = ("wrong-class", "missing-label"), 0.8  # of suspects that count against labels
_UNMATCHED = 0.2  # of the objects
_DEFECTS = 0.01  # of the examples; only the unit of the weight: any defect is reported

_MAX_NAMED = 3  # suspects or classes in a sentence
_MAX_NAME, _MAX_PATH = 14, 40  # characters of a class's name, and of a path in the data


@dataclass(frozen=True, kw_only=True)
class Advice(Report):
    """One line for people that says what is wrong and what to do."""

    cause: Cause
    finding: str
    remedy: str
    weight: float  # how many times over its limit; heavier advice is shown first

    def __str__(self) -> str:
        return f"{self.finding}: {self.remedy}"


Advices = tuple[Advice, ...]


def _advise(cause: Cause, weight: float, finding: str, remedy: str) -> Advices:
    """Return the advice if its weight is above 1, which NaN is not."""
    return (Advice(cause=cause, finding=finding, remedy=remedy, weight=weight),) if weight > 1 else ()


def worst(advice: Iterable[Advice], limit: int = MAX_LINES) -> Advices:
    """Return the advice to show: heaviest first, but a second of one cause after the first of all others."""
    seen: Counter[Cause] = Counter()
    ranked = []
    for item in sorted(advice, key=lambda item: -item.weight):
        ranked.append((seen[item.cause], item))
        seen[item.cause] += 1
    return tuple(item for _, item in sorted(ranked, key=lambda pair: pair[0]))[:limit]


ADD_EXAMPLES = "add examples of the rare ones"
"""The remedy against imbalance that helps with any settings."""


def imbalance(counts: Sequence[int], classes: Sequence[str], *, remedy: str = ADD_EXAMPLES) -> Advices:
    """Check the training examples of each class; classes without any get advice of their own."""
    advice: Advices = ()
    present = sorted((count, name) for count, name in zip(counts, classes, strict=True) if count)
    absent = [_start(name) for count, name in zip(counts, classes, strict=True) if not count]
    if absent:
        more = f" and {len(absent) - _MAX_NAMED} more" if len(absent) > _MAX_NAMED else ""
        finding = f"training data has no example of {', '.join(absent[:_MAX_NAMED])}{more}"
        weight = max(counts) / MAX_IMBALANCE  # as if there were one
        add = "add some, or remove the class"
        advice = (Advice(cause="imbalance", finding=finding, remedy=add, weight=weight),)
    if present:
        (few, rare), (many, common) = present[0], present[-1]
        finding = f"{many} examples of {_start(common)}, {few} of {_start(rare)} ({many / few:.0f} to 1)"
        advice += _advise("imbalance", many / few / MAX_IMBALANCE, finding, remedy)
    return advice


def rare_class_missed(
    counts: Sequence[int], rates: Sequence[ClassRates], *, remedy: str = ADD_EXAMPLES
) -> Advices:
    """Check after training whether a rare class has a low recall, and name the one with the lowest.

    `counts` are those of training examples, `rates` those of the validation split.
    """
    measured = [(rate, count) for rate, count in zip(rates, counts, strict=True) if rate.num_examples]
    rare = [
        (rate.recall, count, rate.name)
        for rate, count in measured
        if count * MAX_IMBALANCE < max(counts) and rate.num_examples >= _MIN_EXAMPLES
    ]
    if not rare:
        return ()
    mean = sum(rate.recall for rate, _ in measured) / len(measured)
    recall, count, name = min(rare)
    finding = f"recall of {_start(name)} ({count} examples) is {recall:.2f}, mean {mean:.2f}"
    return _advise("imbalance", (mean - recall) / _RECALL_GAP, finding, remedy)


def too_complex(num_parameters: int, num_examples: int, *, from_scratch: bool, has_backbone: bool) -> Advices:
    """Check before training whether a network is too large for its data (of running text: characters).

    This is a guess, so it has the least weight: what is measured comes first. `has_backbone`: whether
    pretrained weights may exist.
    """
    if not from_scratch or num_parameters <= _PARAMETERS * num_examples:
        return ()
    finding = f"{format_count(num_parameters)} parameters for {num_examples} training examples"
    pretrained = "init=pretrained, " if has_backbone else ""
    remedy = f"use a smaller network, {pretrained}augmentation or more data"
    return (Advice(cause="too complex", finding=finding, remedy=remedy, weight=1.0),)


def generalization_gap(
    *,
    train_loss: float,
    val_loss: float,
    train_accuracy: float | None = None,
    val_accuracy: float | None = None,
) -> Advices:
    """Compare training with validation examples, both measured in evaluation mode; losses in nats."""
    gaps = [(0.0, "")]
    if val_loss > _LOSS_RATIO * train_loss:
        finding = f"loss is {train_loss:.3g} on training data, {val_loss:.3g} on validation data"
        gaps.append(((val_loss - train_loss) / _LOSS_GAP, finding))
    if train_accuracy is not None and val_accuracy is not None:
        finding = f"accuracy is {train_accuracy:.3f} on training data, {val_accuracy:.3f} on validation data"
        gaps.append(((train_accuracy - val_accuracy) / _ACCURACY_GAP, finding))
    remedy = "try dropout, optim.weight_decay=, augmentation, evaluation.patience=5"
    return _advise("too complex", *max(gaps), remedy)


def detection_gap(*, learned: float, new: float) -> Advices:
    """Compare a detector's AP50 on training images (`learned`) with that on validation images (`new`)."""
    if not is_measured(learned) or not is_measured(new):
        return ()
    finding = f"AP50 is {learned:.3f} on training images, {new:.3f} on validation images"
    remedy = "add images, or try stronger transforms.*, evaluation.patience=5"
    return _advise("too complex", (learned - new) / _AP_GAP, finding, remedy)


def overfitting_trend(*, best_step: int, loss_then: float, loss_now: float, evaluations: int) -> Advices:
    """Check during training whether the training loss falls while evaluations do not improve.

    `evaluations`: those since the best one, which was at `best_step`.
    """
    if evaluations < _WITHOUT_GAIN or not 0 < loss_now < _STILL_FALLING * loss_then:
        return ()
    finding = f"no improvement in {evaluations} evaluations since step {best_step}"
    finding += f"; train loss fell from {loss_then:.3g} to {loss_now:.3g}"
    remedy = f"try evaluation.patience={_WITHOUT_GAIN}, augmentation"
    weight = evaluations / _WITHOUT_GAIN
    return (Advice(cause="too complex", finding=finding, remedy=remedy, weight=weight),)


def stalled(*, best_step: int, evaluations: int) -> Advices:
    """Check during training whether evaluations stopped improving, for a loss that shows no progress."""
    if evaluations < _STALLED:
        return ()
    finding = f"no improvement in {evaluations} evaluations since step {best_step}"
    remedy = f"try evaluation.patience={_STALLED}, lower rates, augmentation or more data"
    return (Advice(cause="too complex", finding=finding, remedy=remedy, weight=evaluations / _STALLED),)


def noisy_labels(noise: LabelNoise, key: Callable[[int], str] = str) -> Advices:
    """Check the labels of training. `key` names a suspect, as `ExampleSplit.key` does."""
    finding = f"about {noise.rate:.0%} of the labels seem wrong"
    remedy = "task.smoothing=0.1 makes them matter less"
    if noise.suspects:
        first = ", ".join(_end(key(index), _MAX_PATH // 2) for index in noise.suspects[:_MAX_NAMED])
        remedy = f"check {counted(len(noise.suspects), 'suspect')}, first {first}"
    return _advise("noise", noise.rate / _NOISE, finding, remedy)


def contradicted_labels(
    probabilities: Probabilities, labels: Ints, *, key: Callable[[int], str] | None, remedy: str = ""
) -> Advices:
    """Check the labels of the validation split by a trained network, if it is accurate enough to doubt them.

    `key` names a suspect, None if they have no names; `remedy` is for the labels of training.
    """
    if (probabilities.argmax(axis=1) == labels).mean() < _MIN_ACCURACY:
        return ()
    noise = label_noise(probabilities, labels)
    rate = min(noise.rate, surely_contradicted(probabilities, labels))
    finding = f"about {rate:.0%} of validation labels seem wrong"
    check = f"check {counted(len(noise.suspects), 'suspect')}"
    if key is not None and noise.suspects:
        check += f", first {_end(key(noise.suspects[0]), _MAX_PATH // 2)}"
    return _advise("noise", rate / _CONTRADICTED, finding, f"{check}; {remedy}" if remedy else check)


def doubted_objects(suspects: Sequence[Suspect], num_objects: int) -> Advices:
    """Check the labels of objects by the suspects that a trained detector is confident about."""
    confident = [each for each in suspects if each.kind in _LABEL_KINDS and each.score >= _MIN_SCORE]
    if not confident:
        return ()
    rate = len(confident) / max(1, num_objects)
    finding = f"about {rate:.0%} of validation labels seem wrong or missing"
    remedy = f"boxcrew doctor run=DIR shows them, first {_end(confident[0].key, _MAX_PATH // 2)}"
    return _advise("noise", rate / _CONTRADICTED, finding, remedy)


class _Defect(NamedTuple):
    """A group of problems in the data that get one line of advice."""

    kinds: tuple[ProblemKind, ...]  # of problems
    noun: str
    attribute: str  # that follows the noun
    remedy: str
    cause: Cause = "missing features"


_NO_LABEL: tuple[ProblemKind, ...] = ("label-missing", "image-without-annotation")
_UNREADABLE: tuple[ProblemKind, ...] = (
    "missing-file", "not-an-image", "unreadable-image", "truncated-image", "image-bomb",
    "unreadable-annotation", "row-malformed", "text-unreadable",
)  # fmt: skip
_DEFECT_GROUPS = (
    _Defect(("value-missing",), "value", "missing", "fill them in, or remove the columns"),
    _Defect(("column-constant",), "column", "with a single value", "remove the columns"),
    _Defect(_NO_LABEL, "example", "without label", "label or remove them"),
    _Defect(_UNREADABLE, "example", "that cannot be read", "restore or remove the files", "noise"),
)


def missing_data(problems: Sequence[Problem], num_examples: int) -> Advices:
    """Check what of the data is missing or cannot be read; `num_examples` are those of training."""
    advice = []
    for group in _DEFECT_GROUPS:
        # What cannot be read and is only noted is no example.
        actions = ("repaired", "left out") if group.cause == "noise" else ACTIONS
        members = [each for each in problems if each.kind in group.kinds and each.action in actions]
        if members:
            count = sum(problem.count for problem in members)
            first = _end(members[0].where, _MAX_PATH)
            finding = f"{counted(count, group.noun)} {group.attribute} (first: {first})"
            weight = count / (_DEFECTS * max(1, num_examples))
            advice.append(Advice(cause=group.cause, finding=finding, remedy=group.remedy, weight=weight))
    return tuple(advice)


def unmatched_objects(matched: float, *, learned_from: str, detector: str) -> Advices:
    """Check whether the detector can match the objects well; `matched` is the share for which it can."""
    finding = f"{1 - matched:.0%} of the objects fit none of the {learned_from} of {detector} well"
    remedy = "boxcrew doctor data= says why, and which size= or setting would help"
    return _advise("missing features", (1 - matched) / _UNMATCHED, finding, remedy)


def uncovered_objects(covered: float) -> Advices:
    """Check whether proposals cover the objects; `covered` is the share that they do."""
    finding = f"proposals cover only {covered:.0%} of the objects; the others cannot be found"
    remedy = (
        "use more of them (detector.proposals=2000), detector.proposal_method=quality, or another detector"
    )
    return _advise("missing features", (1 - covered) / _UNMATCHED, finding, remedy)


def _start(name: str) -> str:
    """Return the start of a name, on one line."""
    name = " ".join(name.split())
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _end(path: str, limit: int) -> str:
    """Return the end of a path, which says most, on one line."""
    path = " ".join(path.split())
    return path if len(path) <= limit else f"…{path[1 - limit :]}"
