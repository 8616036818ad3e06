"""Labels that a trained detector contradicts: the likely missing and wrong ones, worst first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from boxcrew.core.boxes import area, iou, overlap
from boxcrew.core.types import Bools, Floats, Ints
from boxcrew.evaluate.detection.matches import MATCH_IOU, ClassMatches, class_matches, crowded
from boxcrew.evaluate.detection.metric import EvaluatedImage, f1

Kind = Literal["missing-label", "wrong-class", "wrong-box", "unfindable"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Box = tuple[float, float, float, float]

_NEAR_IOU = 0.2  # from here to MATCH_IOU a box is about the same object, but not around it
_TRUSTED_F1 = 0.5  # a class the detector knows less well says nothing about labels
_SAID = (0.3, 0.5)  # what a detector says with less than the first, it does not say; with the second, it does
_FLOOR = 0.01  # no probability counts as less: detectors do not tell what they find less likely


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A place where labels and detector disagree, for a person to look at. It is not proof: a detector that
    has learnt from the labels it judges repeats their systematic errors, and makes errors of its own.

    `loss` is what the disagreement costs in nats (natural logarithm), the detector's scores taken as
    probabilities, and at least 0.01:
    - missing-label: -log(1 - score) of a detection where nothing is labelled
    - unfindable: -log(p) of a label, p being the score of its own class there; found with too little overlap
      counts in proportion
    - wrong-class, wrong-box: both together, for a label that the detector misses and what it finds instead
    """

    kind: Kind
    key: str
    split: str
    box: Box  # xyxy in pixels of the original: the label's; of a missing label the detection's
    label: str | None  # what the annotation says; None: nothing
    found: str | None  # what the detector says; None: nothing
    score: float  # of that; of an unfindable label p as above
    loss: float
    found_box: Box | None = None  # where the detector sees it, if it sees anything

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Classes:
    names: tuple[str, ...]
    trusted: Bools  # (C,)
    least: Floats  # (C,) the score from which a detection is taken as said


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pair:
    """One image: its objects (G of them) against the detections (D of them)."""

    split: str
    evaluated: EvaluatedImage
    classes: _Classes
    found_boxes: Floats
    found_labels: Ints
    scores: Floats
    shared: Floats  # (G, D) IoU
    same: Bools  # (G, D) of one class
    free: Bools  # (D,) said, of a trusted class, and on no object of its own class


def suspects_of(
    evaluated: Mapping[str, Sequence[EvaluatedImage]], classes: tuple[str, ...], *, limit: int = 24
) -> tuple[Suspect, ...]:
    """At most `limit` of each kind, greatest loss first, the kinds in the order of `KINDS`.

    A detection counts as said from the score on that gives its class the best F1 against the labels, within
    0.3 and 0.5. Classes whose F1 stays under 0.5 are left out altogether, as label and as finding: so a
    detector that has learnt nothing names nothing. Difficult objects are never suspect, and excuse
    detections on them; so do crowds.
    """
    every = [one for images in evaluated.values() for one in images]
    known = _judge_classes(every, classes)
    suspects = [
        suspect
        for split, images in evaluated.items()
        for one in images
        for suspect in _of_image(_compare(split, one, known))
    ]
    # Of labels that are missed alike, the larger object is the stranger.
    suspects.sort(key=lambda suspect: (-suspect.loss, -_area(suspect.box), suspect.key))
    return tuple(
        suspect for kind in KINDS for suspect in [one for one in suspects if one.kind == kind][:limit]
    )


def _judge_classes(evaluated: Sequence[EvaluatedImage], classes: tuple[str, ...]) -> _Classes:
    best = [_best_threshold(one) for one in class_matches(evaluated, num_classes=len(classes))]
    return _Classes(
        names=classes,
        trusted=np.array([quality >= _TRUSTED_F1 for quality, _ in best], dtype=np.bool_),
        least=np.array([score for _, score in best], dtype=np.float32).clip(*_SAID),
    )


def _best_threshold(one: ClassMatches) -> tuple[float, float]:
    """The best F1 of a class, and the score it has it from."""
    if not len(one.scores) or not one.num_objects:
        return 0.0, 1.0
    right = np.cumsum(one.right)
    said = np.arange(1, len(right) + 1)
    qualities = [f1(r / n, r / one.num_objects) for r, n in zip(right.tolist(), said.tolist(), strict=True)]
    best = int(np.argmax(qualities))
    return qualities[best], float(one.scores[best])


def _compare(split: str, one: EvaluatedImage, classes: _Classes) -> _Pair:
    boxes, labels = one.detections.boxes.numpy(), one.detections.labels.numpy()
    scores = one.detections.scores.numpy()
    shared = iou(one.target.boxes, boxes)
    same = one.target.labels[:, None] == labels
    excused = (crowded(boxes, one.target.boxes) & one.target.crowd & same.T).any(axis=1)
    explained = ((shared >= MATCH_IOU) & same).any(axis=0)
    return _Pair(
        split=split,
        evaluated=one,
        classes=classes,
        found_boxes=boxes,
        found_labels=labels,
        scores=scores,
        shared=shared,
        same=same,
        free=(scores >= classes.least[labels]) & classes.trusted[labels] & ~explained & ~excused,
    )


def _of_image(pair: _Pair) -> Iterator[Suspect]:
    target = pair.evaluated.target
    used = np.zeros_like(pair.free)
    for number in np.flatnonzero(~target.crowd & ~target.difficult & pair.classes.trusted[target.labels]):
        suspect, instead = _of_label(pair, int(number), pair.free & ~used)
        if instead is not None:
            used[instead] = True
        if suspect is not None:
            yield suspect
    yield from _missing(pair, pair.free & ~used)


def _of_label(pair: _Pair, number: int, free: Bools) -> tuple[Suspect | None, int | None]:
    """What speaks against a label, and which of the `free` detections was found in its place."""
    shared, same = pair.shared[number], pair.same[number]
    own = int(pair.evaluated.target.labels[number])
    scores = np.where(same, pair.scores, 0)
    if scores[shared >= MATCH_IOU].max(initial=0) >= pair.classes.least[own]:
        return None, None
    likely = max(_FLOOR, float((scores * np.minimum(1, shared / MATCH_IOU)).max(initial=0)))
    other = free & ~same & (shared >= MATCH_IOU)
    shifted = free & same & (shared >= _NEAR_IOU)
    kinds: tuple[tuple[Kind, Bools], ...] = (("wrong-class", other), ("wrong-box", shifted))
    for kind, instead in kinds:
        if instead.any():
            best = int(np.where(instead, pair.scores, -1).argmax())
            at_all = max(_FLOOR, float(scores[shared >= MATCH_IOU].max(initial=0)))
            loss = _surprise(float(pair.scores[best])) - math.log(at_all)
            return _suspect(pair, kind, number=number, detection=best, loss=loss), best
    return _suspect(pair, "unfindable", number=number, loss=-math.log(likely), score=likely), None


def _missing(pair: _Pair, free: Bools) -> Iterator[Suspect]:
    """Of the `free` detections those that are about no labelled object: not a second one on it, not a part of
    it. Of several at one place the best.
    """
    target = pair.evaluated.target
    part = overlap(target.boxes, pair.found_boxes) >= 0.5 * np.maximum(area(pair.found_boxes), 1e-6)
    about = ((pair.shared >= MATCH_IOU) | (pair.same & ((pair.shared >= _NEAR_IOU) | part))).any(axis=0)
    left = np.flatnonzero(free & ~about)
    taken = np.zeros((0, 4), dtype=np.float32)
    for detection in left[np.argsort(-pair.scores[left], kind="stable")]:
        box = pair.found_boxes[detection : detection + 1]
        if (iou(taken, box) < MATCH_IOU).all():
            taken = np.concatenate([taken, box])
            loss = _surprise(float(pair.scores[detection]))
            yield _suspect(pair, "missing-label", detection=int(detection), loss=loss)


def _suspect(
    pair: _Pair,
    kind: Kind,
    *,
    loss: float,
    number: int | None = None,
    detection: int | None = None,
    score: float = 0.0,
) -> Suspect:
    """About the label of that number, the detection, or both."""
    names, target = pair.classes.names, pair.evaluated.target
    where = None if detection is None else _box(pair.found_boxes[detection])
    box = where if number is None else _box(target.boxes[number])
    assert box is not None
    return Suspect(
        kind=kind,
        key=pair.evaluated.key,
        split=pair.split,
        box=box,
        label=None if number is None else names[target.labels[number]],
        found=None if detection is None else names[pair.found_labels[detection]],
        score=score if detection is None else float(pair.scores[detection]),
        loss=loss,
        found_box=where,
    )


def _surprise(score: float) -> float:
    """What a detection costs where nothing is to be found."""
    return -math.log(max(_FLOOR, 1 - score))


def _box(box: Floats) -> Box:
    x0, y0, x1, y1 = box.tolist()
    return x0, y0, x1, y1


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
