"""Finds labels that a trained detector contradicts: those likely missing or wrong, worst first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from boxcrew.core.boxes import area, intersection, iou
from boxcrew.core.types import Bools, Floats, Ints
from boxcrew.evaluate.detection.matches import MATCH_IOU, ClassMatches, class_matches, crowded
from boxcrew.evaluate.detection.types import EvaluatedImage
from boxcrew.evaluate.evaluation import Report, f1

SuspectKind = Literal["missing-label", "wrong-class", "wrong-box", "unfindable"]
KINDS: tuple[SuspectKind, ...] = get_args(SuspectKind)
Box = tuple[float, float, float, float]

_NEAR_IOU = 0.2  # from here to MATCH_IOU a box is about the same object, but not around it
_TRUSTED_F1 = 0.5  # below, a class's detections say nothing about labels
_THRESHOLD_RANGE = (0.3, 0.5)  # of scores from which detections count
_MIN_PROBABILITY = 0.01  # detectors do not output what they find less likely


@dataclass(frozen=True, kw_only=True)
class Suspect(Report):
    """A disagreement of labels and detector, for a person to check.

    It is not proof: a detector repeats systematic errors of the labels it was trained on, and makes its own.

    `loss` is the cost of the disagreement in nats, with the detector's scores as probabilities of at least
    0.01:
    - missing-label: -log(1 - score) of a detection where nothing is labeled
    - unfindable: -log(p) of a label, p being the score of its own class there; that of a detection with too
      little overlap counts in proportion
    - wrong-class, wrong-box: both together, for a label that the detector misses and what it detects instead
    """

    kind: SuspectKind
    key: str
    split: str
    box: Box  # xyxy in pixels of the original: the label's; the detection's if the label is missing
    label: str | None  # the annotated class; None: nothing is annotated
    detected: str | None  # the detected class; None: nothing is detected
    score: float  # of the detection; of an unfindable label p as above
    loss: float
    detected_box: Box | None = None  # of the detection


class _Classes:
    """The classes, and for which of them the detector is good enough to doubt labels."""

    def __init__(self, names: tuple[str, ...], images: Sequence[EvaluatedImage]) -> None:
        best = [_best_threshold(matches) for matches in class_matches(images, num_classes=len(names))]
        quality, score = np.array(best).reshape(-1, 2).T
        self.names = names
        self.trusted: Bools = quality >= _TRUSTED_F1  # (C,)
        self.threshold: Floats = score.astype(np.float32).clip(*_THRESHOLD_RANGE)  # (C,) of what counts


class _Comparison:
    """One image with its G objects compared to its D detections."""

    def __init__(self, split: str, image: EvaluatedImage, classes: _Classes) -> None:
        self.split, self.image, self.classes = split, image, classes
        target, detections = image.target, image.detections
        self.boxes: Floats = detections.boxes  # (D, 4)
        self.labels: Ints = detections.labels  # (D,)
        self.scores: Floats = detections.scores  # (D,)
        self.overlaps = iou(target.boxes, self.boxes)  # (G, D)
        self.same: Bools = target.labels[:, None] == self.labels  # (G, D) of one class
        excused = (crowded(self.boxes, target.boxes) & target.crowd & self.same.T).any(axis=1)
        matched = ((self.overlaps >= MATCH_IOU) & self.same).any(axis=0)
        counts = (self.scores >= classes.threshold[self.labels]) & classes.trusted[self.labels]
        self.free: Bools = counts & ~matched & ~excused  # (D,) counts, and lies on no object of its class

    def detected(self, index: int) -> dict[str, Any]:
        """Return the fields of a suspect that are about a detection."""
        name = self.classes.names[self.labels[index]]
        return {"detected": name, "detected_box": _box(self.boxes[index]), "score": float(self.scores[index])}


def suspects_of(
    images: Mapping[str, Sequence[EvaluatedImage]], classes: tuple[str, ...], *, limit: int = 24
) -> tuple[Suspect, ...]:
    """Return at most `limit` suspects of each kind, greatest loss first, the kinds in the order of `KINDS`.

    `images` are those of each split. A detection counts from the score on that gives its class the best F1
    against the labels, within 0.3 and 0.5. Classes whose F1 stays below 0.5 are left out altogether, as
    labels and as detections: an untrained detector suspects nothing. Difficult objects are never suspect, and
    excuse detections on them; so do crowds.
    """
    pairs = [(split, image) for split, members in images.items() for image in members]
    known = _Classes(classes, [image for _, image in pairs])
    suspects = [each for pair in pairs for each in _of_image(_Comparison(*pair, known))]
    # Of labels with equal loss, the larger object is the more surprising.
    suspects.sort(key=lambda suspect: (-suspect.loss, -_area(suspect.box), suspect.key))
    by_kind = ([suspect for suspect in suspects if suspect.kind == kind] for kind in KINDS)
    return tuple(suspect for members in by_kind for suspect in members[:limit])


def _best_threshold(matches: ClassMatches) -> tuple[float, float]:
    """Return the best F1 of a class, and the score threshold that gives it."""
    if not len(matches.scores) or not matches.num_objects:
        return 0.0, 1.0
    num_right = np.cumsum(matches.true_positive).tolist()
    qualities = [f1(r / n, r / matches.num_objects) for n, r in enumerate(num_right, start=1)]
    best = int(np.argmax(qualities))
    return qualities[best], float(matches.scores[best])


def _of_image(pair: _Comparison) -> Iterator[Suspect]:
    target = pair.image.target
    used = np.zeros_like(pair.free)
    for number in np.flatnonzero(~target.crowd & ~target.difficult & pair.classes.trusted[target.labels]):
        suspect, instead = _of_label(pair, int(number), pair.free & ~used)
        if instead is not None:
            used[instead] = True
        if suspect is not None:
            yield suspect
    yield from _missing(pair, pair.free & ~used)


def _of_label(pair: _Comparison, number: int, free: Bools) -> tuple[Suspect | None, int | None]:
    """Return what speaks against a label, and which of the `free` detections stands in its place."""
    overlaps, same, target = pair.overlaps[number], pair.same[number], pair.image.target
    label = int(target.labels[number])
    scores = np.where(same, pair.scores, 0)
    at_label = float(scores[overlaps >= MATCH_IOU].max(initial=0))
    if at_label >= pair.classes.threshold[label]:
        return None, None
    fields: dict[str, Any] = {"key": pair.image.key, "split": pair.split}
    fields |= {"box": _box(target.boxes[number]), "label": pair.classes.names[label]}
    kinds: dict[SuspectKind, Bools] = {
        "wrong-class": free & ~same & (overlaps >= MATCH_IOU),
        "wrong-box": free & same & (overlaps >= _NEAR_IOU),
    }
    for kind, instead in kinds.items():
        if instead.any():
            best = int(np.where(instead, pair.scores, -1).argmax())
            loss = _surprise(float(pair.scores[best])) - math.log(max(_MIN_PROBABILITY, at_label))
            return Suspect(kind=kind, loss=loss, **fields, **pair.detected(best)), best
    score = max(_MIN_PROBABILITY, float((scores * np.minimum(1, overlaps / MATCH_IOU)).max(initial=0)))
    return Suspect(kind="unfindable", loss=-math.log(score), score=score, detected=None, **fields), None


def _missing(pair: _Comparison, free: Bools) -> Iterator[Suspect]:
    """Yield the `free` detections that are neither on nor inside a labeled object; of several, the best."""
    inside = intersection(pair.image.target.boxes, pair.boxes) >= 0.5 * np.maximum(area(pair.boxes), 1e-6)
    near = pair.same & ((pair.overlaps >= _NEAR_IOU) | inside)
    belongs = ((pair.overlaps >= MATCH_IOU) | near).any(axis=0)
    candidates = np.flatnonzero(free & ~belongs)
    yielded = np.zeros((0, 4), dtype=np.float32)
    for detection in candidates[np.argsort(-pair.scores[candidates], kind="stable")]:
        box = pair.boxes[detection : detection + 1]
        if (iou(yielded, box) < MATCH_IOU).all():
            yielded = np.concatenate([yielded, box])
            loss, fields = _surprise(float(pair.scores[detection])), pair.detected(detection)
            fields |= {
                "key": pair.image.key,
                "split": pair.split,
                "box": fields["detected_box"],
                "label": None,
            }
            yield Suspect(kind="missing-label", loss=loss, **fields)


def _surprise(score: float) -> float:
    """Return the loss of a detection where no object is."""
    return -math.log(max(_MIN_PROBABILITY, 1 - score))


def _box(box: Floats) -> Box:
    x0, y0, x1, y1 = box.tolist()
    return x0, y0, x1, y1


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
