"""Which detections are right at IoU 0.5, by the rules of the VOC devkit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from boxcrew.core.boxes import area, iou, overlap
from boxcrew.core.types import Bools, Floats, Ints, Target
from boxcrew.evaluate.detection.metric import EvaluatedImage

MATCH_IOU = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassMatches:
    """The detections of one class over all images, best first, without those that count neither way."""

    scores: Floats  # (D,) descending
    right: Bools  # (D,)
    num_objects: int  # that ought to be found: neither difficult nor crowd


@dataclass(frozen=True, kw_only=True, eq=False)
class _Matches:
    """The detections of some images, and the true object that decides about each."""

    scores: Floats
    labels: Ints
    matched: Ints  # number of the object among those of all images; -1: none
    ignored: Bools  # the object is difficult, or a crowd


def class_matches(evaluated: Sequence[EvaluatedImage], *, num_classes: int) -> list[ClassMatches]:
    """For each class, in order.

    As in the devkit, the object of its class that a detection overlaps most decides about it: below IoU
    0.5 it is wrong; on a difficult object it counts neither way; on an object that a better detection has
    taken it is wrong. Unlike the devkit, IoU takes coordinates as continuous (no pixel is added to a
    side). A crowd, which VOC does not know, is treated as COCO does: what matches no object and lies at
    least half inside a crowd of its class counts neither way. Equal scores keep the order of the images.
    """
    matches = _join(_match_all(evaluated))
    ordinary = [one.target.labels[~(one.target.difficult | one.target.crowd)] for one in evaluated]
    labels = np.concatenate([*ordinary, np.zeros(0, np.int64)])
    num_objects = np.bincount(labels, minlength=num_classes)
    return [_of_class(matches, label, int(num_objects[label])) for label in range(num_classes)]


def crowded(boxes: Floats, crowds: Floats) -> Bools:
    """(N, M) whether at least half of each box lies inside each crowd."""
    return overlap(boxes, crowds) >= MATCH_IOU * np.maximum(area(boxes), np.finfo(np.float32).tiny)[:, None]


def _of_class(matches: _Matches, label: int, num_objects: int) -> ClassMatches:
    mine = np.flatnonzero((matches.labels == label) & ~matches.ignored)
    mine = mine[np.argsort(-matches.scores[mine], kind="stable")]
    matched = matches.matched[mine]
    objects, first = np.unique(matched, return_index=True)  # the first is the best, so it takes the object
    right = np.zeros(len(mine), dtype=np.bool_)
    right[first[objects >= 0]] = True
    return ClassMatches(scores=matches.scores[mine], right=right, num_objects=num_objects)


def _match_all(evaluated: Sequence[EvaluatedImage]) -> Iterator[_Matches]:
    start = 0
    for one in evaluated:
        boxes, labels = one.detections.boxes.numpy(), one.detections.labels.numpy()
        matched, ignored = _match(boxes, labels, one.target)
        yield _Matches(
            scores=one.detections.scores.numpy(),
            labels=labels,
            matched=np.where(matched >= 0, matched + start, -1),
            ignored=ignored,
        )
        start += len(one.target)


def _match(boxes: Floats, labels: Ints, target: Target) -> tuple[Ints, Bools]:
    """The object that decides about each detection of an image (-1: none), and whether to ignore it."""
    if not len(boxes) or not len(target):
        return np.full(len(boxes), -1), np.zeros(len(boxes), dtype=np.bool_)
    same = labels[:, None] == target.labels
    shared = np.where(same & ~target.crowd, iou(boxes, target.boxes), -1)
    best = shared.argmax(axis=1)
    hit = shared[np.arange(len(boxes)), best] >= MATCH_IOU
    inside = (crowded(boxes, target.boxes) & same & target.crowd).any(axis=1)
    return np.where(hit, best, -1), np.where(hit, target.difficult[best], inside)


def _join(parts: Iterator[_Matches]) -> _Matches:
    none = np.zeros(0, dtype=np.int64)
    nothing = _Matches(
        scores=none.astype(np.float32), labels=none, matched=none, ignored=none.astype(np.bool_)
    )
    every = [nothing, *parts]
    return _Matches(
        scores=np.concatenate([part.scores for part in every]),
        labels=np.concatenate([part.labels for part in every]),
        matched=np.concatenate([part.matched for part in every]),
        ignored=np.concatenate([part.ignored for part in every]),
    )
