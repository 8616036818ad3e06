"""The four causes of bad training, each as a check that says what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from boxcrew.core.types import Ints
from boxcrew.core.units import counted, format_count
from boxcrew.data.checks.problem import ACTIONS, Action, Kind, Problem
from boxcrew.evaluate.classification import Probabilities
from boxcrew.evaluate.detection.metric import ClassRates
from boxcrew.evaluate.detection.suspects import Suspect
from boxcrew.evaluate.label_noise import LabelNoise, label_noise, surely_contradicted

Cause = Literal["missing features", "too complex", "imbalance", "noise"]

MAX_LINES, MAX_LINES_BEFORE = 3, 2
"""Lines of advice that a run shows on the screen, and of these before its first step: one at least is left
for what training itself brings to light."""

# Limits from which on something is said.
_IMBALANCE = 5.0  # times as many examples of the commonest class as of the rarest
_PARAMETERS = 100.0  # for each example
_ACCURACY_GAP = 0.1
_AP_GAP = 0.2
_LOSS_GAP = 0.2  # nats
_LOSS_RATIO = 1.25  # and so many times as large: of large losses a small part is no gap
_WITHOUT_GAIN, _STILL_FALLING = 3, 0.9  # evaluations that are no better while the loss falls below this part
_STALLED = 5  # evaluations that are no better, where losses tell nothing
_RECALL_GAP, _JUDGED = 0.2, 3  # below the mean; by so many examples or more, for of fewer chance decides
_NOISE = 0.02  # of the labels
_KNOWING, _CONTRADICTED = 0.7, 0.05  # of a network's answers, right; of the labels, by one network alone
_LABEL_KINDS, _SURE = ("wrong-class", "missing-label"), 0.8  # of suspects that speak against labels; scores
_LACKING = 0.01  # of the examples; not a limit, only what a weight is measured by

_NAMED = 3  # suspects or classes in a sentence
_NAME, _PLACE = 14, 40  # characters that the name of a class, and a place in the data, may take


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One line for people: what is the matter, and what to do."""

    cause: Cause
    what: str
    remedy: str
    weight: float  # how many times over its limit; the heavier, the sooner said

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def worst(advice: Iterable[Advice], limit: int = MAX_LINES) -> tuple[Advice, ...]:
    """Those that a screen has lines for: the heaviest first, but a second of one cause only after the first
    of every other.
    """
    said: Counter[Cause] = Counter()
    turns = []
    for one in sorted(advice, key=lambda one: -one.weight):
        turns.append((said[one.cause], one))
        said[one.cause] += 1
    return tuple(one for _, one in sorted(turns, key=lambda turn: turn[0]))[:limit]


ADD_EXAMPLES = "add examples of the rare ones"
"""Helps against imbalance whatever is set."""


def imbalance(counts: Sequence[int], classes: Sequence[str], *, remedy: str = ADD_EXAMPLES) -> tuple[Advice, ...]:
    """Of the training examples of each class; classes without any are told by themselves."""
    found: list[Advice] = []
    present = sorted((count, name) for count, name in zip(counts, classes, strict=True) if count)
    absent = [_start(name) for count, name in zip(counts, classes, strict=True) if not count]
    if absent:
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        what = f"train has no example of {', '.join(absent[:_NAMED])}{more}"
        weight = max(counts) / _IMBALANCE  # as if there were one
        found.append(
            Advice(cause="imbalance", what=what, remedy="add some, or take the class away", weight=weight)
        )
    if present and (ratio := present[-1][0] / present[0][0]) > _IMBALANCE:
        (few, rare), (many, common) = present[0], present[-1]
        what = f"{many} examples of {_start(common)}, {few} of {_start(rare)} ({ratio:.0f} to 1)"
        found.append(Advice(cause="imbalance", what=what, remedy=remedy, weight=ratio / _IMBALANCE))
    return tuple(found)


def rare_class_missed(counts: Sequence[int], rates: Sequence[ClassRates], *, remedy: str = ADD_EXAMPLES) -> tuple[Advice, ...]:
    """After training: the class among the rare ones that is found least. `counts` are of training examples,
    `rates` measured on new ones.
    """
    seen = [(rate, count) for rate, count in zip(rates, counts, strict=True) if rate.num_examples]
    rare = [
        (rate.recall, count, rate.name)
        for rate, count in seen
        if count * _IMBALANCE < max(counts) and rate.num_examples >= _JUDGED
    ]
    if not rare:
        return ()
    mean = sum(rate.recall for rate, _ in seen) / len(seen)
    recall, count, name = min(rare)
    weight = (mean - recall) / _RECALL_GAP
    if weight <= 1:
        return ()
    what = f"recall of {_start(name)} ({count} learnt) is {recall:.2f}, mean {mean:.2f}"
    return (Advice(cause="imbalance", what=what, remedy=remedy, weight=weight),)


def too_complex(
    num_parameters: int, num_examples: int, *, from_scratch: bool, has_backbone: bool
) -> tuple[Advice, ...]:
    """Before training; `num_examples` of a text are its characters. It is a guess, so it has the least
    weight: what is measured comes first. `has_backbone`: whether there may be weights for it.
    """
    if not from_scratch or num_parameters <= _PARAMETERS * num_examples:
        return ()
    what = f"{format_count(num_parameters)} parameters learn from {num_examples} examples"
    others = "init=pretrained, augmentation" if has_backbone else "augmentation"
    remedy = f"take a smaller network, {others} or more data"
    return (Advice(cause="too complex", what=what, remedy=remedy, weight=1.0),)


def generalization_gap(
    *,
    train_loss: float,
    val_loss: float,
    train_accuracy: float | None = None,
    val_accuracy: float | None = None,
) -> tuple[Advice, ...]:
    """Between what was learnt and new examples, both measured in evaluation mode; losses in nats."""
    found: list[tuple[float, str]] = []
    if val_loss > _LOSS_RATIO * train_loss:
        weight = (val_loss - train_loss) / _LOSS_GAP
        found.append((weight, f"loss is {train_loss:.3g} on what was learnt, {val_loss:.3g} on new examples"))
    if train_accuracy is not None and val_accuracy is not None:
        weight = (train_accuracy - val_accuracy) / _ACCURACY_GAP
        shares = f"{train_accuracy:.3f} on what was learnt, {val_accuracy:.3f} on new examples"
        found.append((weight, f"accuracy is {shares}"))
    weight, what = max(found, default=(0.0, ""))
    if not weight > 1:  # nor is a number that is not one
        return ()
    remedy = "try dropout, optim.weight_decay=, augmentation, evaluation.patience=5"
    return (Advice(cause="too complex", what=what, remedy=remedy, weight=weight),)


def detection_gap(*, learnt: float, new: float) -> tuple[Advice, ...]:
    """The same of detectors, by the AP50 on photos of both."""
    weight = (learnt - new) / _AP_GAP
    if not weight > 1:
        return ()
    what = f"AP50 is {learnt:.3f} on photos that were learnt, {new:.3f} on new ones"
    remedy = "add photos, or try stronger transforms.*, evaluation.patience=5"
    return (Advice(cause="too complex", what=what, remedy=remedy, weight=weight),)


def overfitting_trend(*, best_step: int, loss_then: float, loss_now: float, evaluations: int) -> tuple[Advice, ...]:
    """While it learns: evaluations have been no better since `best_step`, and the loss in training fell."""
    if evaluations < _WITHOUT_GAIN or not 0 < loss_now < _STILL_FALLING * loss_then:
        return ()
    what = (
        f"no evaluation was better in {evaluations} since step {best_step}, and the loss fell from "
        f"{loss_then:.3g} to {loss_now:.3g}"
    )
    remedy = f"try evaluation.patience={_WITHOUT_GAIN}, augmentation"
    weight = evaluations / _WITHOUT_GAIN
    return (Advice(cause="too complex", what=what, remedy=remedy, weight=weight),)


def stalled(*, best_step: int, evaluations: int) -> tuple[Advice, ...]:
    """The same of phases that work against each other, whose losses tell nothing: evaluations alone count."""
    if evaluations < _STALLED:
        return ()
    what = f"no evaluation was better in {evaluations} since step {best_step}"
    remedy = f"try evaluation.patience={_STALLED}, lower rates, augmentation or more data"
    return (Advice(cause="too complex", what=what, remedy=remedy, weight=evaluations / _STALLED),)


def noisy_labels(found: LabelNoise, key: Callable[[int], str] = str) -> tuple[Advice, ...]:
    """`key` names a suspect, as `Examples.key` does."""
    if found.rate <= _NOISE:
        return ()
    what = f"about {found.rate:.0%} of the labels seem wrong"
    remedy = "task.smoothing=0.1 makes them matter less"
    if found.suspects:
        first = ", ".join(_end(key(place), _PLACE // 2) for place in found.suspects[:_NAMED])
        remedy = f"look at {counted(len(found.suspects), 'suspect')}, first {first}"
    return (Advice(cause="noise", what=what, remedy=remedy, weight=found.rate / _NOISE),)


def contradicted_labels(
    answers: Probabilities, labels: Ints, *, key: Callable[[int], str] | None, remedy: str = ""
) -> tuple[Advice, ...]:
    """After training: the same by a trained network's answers to new examples, if it knows enough of them to
    doubt a label. `key` names a suspect, if they can be named; `remedy` is for the labels of training.
    """
    if (answers.argmax(axis=1) == labels).mean() < _KNOWING:
        return ()
    found = label_noise(answers, labels)
    rate = min(found.rate, surely_contradicted(answers, labels))
    if rate <= _CONTRADICTED:
        return ()
    what = f"about {rate:.0%} of validation labels seem wrong"
    look = f"look at {counted(len(found.suspects), 'suspect')}"
    if key is not None and found.suspects:
        look += f", first {_end(key(found.suspects[0]), _PLACE // 2)}"
    remedy = f"{look}; {remedy}" if remedy else look
    return (Advice(cause="noise", what=what, remedy=remedy, weight=rate / _CONTRADICTED),)


def doubted_objects(suspects: Sequence[Suspect], num_objects: int) -> tuple[Advice, ...]:
    """The same of objects in photos: of what a detector says against their labels, what it is sure of."""
    sure = [one for one in suspects if one.kind in _LABEL_KINDS and one.score >= _SURE]
    rate = len(sure) / max(1, num_objects)
    if rate <= _CONTRADICTED:
        return ()
    what = f"about {rate:.0%} of validation labels seem wrong or missing"
    remedy = f"boxcrew doctor run= shows them, first {_end(sure[0].key, _PLACE // 2)}"
    return (Advice(cause="noise", what=what, remedy=remedy, weight=rate / _CONTRADICTED),)


@dataclass(frozen=True, kw_only=True)
class _Lack:
    cause: Cause
    kinds: frozenset[Kind]  # of problems
    noun: str
    said: str
    remedy: str
    actions: frozenset[Action] = frozenset(ACTIONS)  # that were taken

    def has(self, problem: Problem) -> bool:
        return problem.kind in self.kinds and problem.action in self.actions


_UNREADABLE: frozenset[Kind] = frozenset(
    {
        "missing-file",
        "not-an-image",
        "unreadable-image",
        "truncated-image",
        "image-bomb",
        "unreadable-annotation",
        "row-malformed",
        "text-unreadable",
    }
)
_LACKS = (
    _Lack(
        cause="missing features",
        kinds=frozenset({"value-missing"}),
        noun="value",
        said="missing",
        remedy="fill them in, or leave the columns out",
    ),
    _Lack(
        cause="missing features",
        kinds=frozenset({"column-constant"}),
        noun="column",
        said="without any change",
        remedy="leave out what tells nothing",
    ),
    _Lack(
        cause="missing features",
        kinds=frozenset({"label-missing", "image-without-annotation"}),
        noun="example",
        said="without label",
        remedy="label or remove what has none",
    ),
    _Lack(
        cause="noise",
        kinds=_UNREADABLE,
        noun="example",
        said="that cannot be read",
        remedy="restore or remove what is broken",
        actions=frozenset[Action]({"repaired", "left out"}),  # what is only noted is no example
    ),
)


def missing_data(problems: Sequence[Problem], num_examples: int) -> tuple[Advice, ...]:
    """What the data lacks, and what of it cannot be read, of so many examples in all."""
    groups = [(lack, [one for one in problems if lack.has(one)]) for lack in _LACKS]
    return tuple(_lacking(lack, mine, num_examples) for lack, mine in groups if mine)


def _lacking(lack: _Lack, problems: Sequence[Problem], num_examples: int) -> Advice:
    count = sum(one.count for one in problems)
    noun = lack.noun if count == 1 else f"{lack.noun}s"
    what = f"{count} {noun} {lack.said} (first: {_end(problems[0].where, _PLACE)})"
    weight = count / (_LACKING * max(1, num_examples))
    return Advice(cause=lack.cause, what=what, remedy=lack.remedy, weight=weight)


def _start(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _end(place: str, limit: int) -> str:
    """Of a path, the end says most."""
    place = " ".join(place.split())
    return place if len(place) <= limit else f"…{place[1 - limit :]}"
