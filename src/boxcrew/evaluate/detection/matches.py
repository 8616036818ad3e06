"""Matches detections with objects at IoU 0.5 by the rules of the VOC devkit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boxcrew.core.boxes import area, intersection, iou
from boxcrew.core.types import Bools, Floats, Ints, Target
from boxcrew.evaluate.detection.types import EvaluatedImage

MATCH_IOU = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassMatches:
    """The detections of one class in all images, highest score first, each a true or a false positive.

    Detections on difficult objects and on crowds count neither way and are left out.
    """

    scores: Floats  # (D,) descending
    true_positive: Bools  # (D,)
    num_objects: int  # to be detected: neither difficult nor crowd


class _Matches(NamedTuple):
    """The detections of some images, of all classes, and the object that each is matched with."""

    scores: Floats
    labels: Ints
    matched: Ints  # index of the object among those of all images; -1: none
    ignored: Bools  # the object is difficult, or a crowd


def class_matches(images: Sequence[EvaluatedImage], *, num_classes: int) -> list[ClassMatches]:
    """Match the detections of each class with its objects; the result is in the order of the classes.

    As in the devkit, a detection is matched with the object of its class that it overlaps most. It is a false
    positive below IoU 0.5, or if a better detection is matched with the same object; it counts neither way if
    the object is difficult. Unlike in the devkit, coordinates are continuous (no pixel is added to a side). A
    crowd, which VOC does not know, is treated as in COCO: a detection that matches no object and lies at
    least half inside a crowd of its class counts neither way. Equal scores keep the order of the images.
    """
    none, start = np.zeros(0, dtype=np.int64), 0
    parts = [_Matches(none.astype(np.float32), none, none, none.astype(np.bool_))]
    for image in images:
        labels = image.detections.labels
        matched, ignored = _match(image.detections.boxes, labels, image.target)
        matched = np.where(matched >= 0, matched + start, -1)
        parts.append(_Matches(image.detections.scores, labels, matched, ignored))
        start += len(image.target)
    matches = _Matches(*map(np.concatenate, zip(*parts, strict=True)))
    ordinary = [image.target.labels[~(image.target.difficult | image.target.crowd)] for image in images]
    num_objects = np.bincount(np.concatenate([*ordinary, none]), minlength=num_classes)
    return [_of_class(matches, label, int(num_objects[label])) for label in range(num_classes)]


def crowded(boxes: Floats, crowds: Floats) -> Bools:
    """Return (N, M) whether at least half of each box lies inside each crowd."""
    return (
        intersection(boxes, crowds) >= MATCH_IOU * np.maximum(area(boxes), np.finfo(np.float32).tiny)[:, None]
    )


def _of_class(matches: _Matches, label: int, num_objects: int) -> ClassMatches:
    chosen = np.flatnonzero((matches.labels == label) & ~matches.ignored)
    chosen = chosen[np.argsort(-matches.scores[chosen], kind="stable")]
    # The first detection of each object has the highest score; the others are false positives.
    objects, first = np.unique(matches.matched[chosen], return_index=True)
    true_positive = np.zeros(len(chosen), dtype=np.bool_)
    true_positive[first[objects >= 0]] = True
    return ClassMatches(scores=matches.scores[chosen], true_positive=true_positive, num_objects=num_objects)


def _match(boxes: Floats, labels: Ints, target: Target) -> tuple[Ints, Bools]:
    """Return the object that each detection is matched with (-1: none), and whether to ignore it."""
    if not len(boxes) or not len(target):
        return np.full(len(boxes), -1), np.zeros(len(boxes), dtype=np.bool_)
    same = labels[:, None] == target.labels
    overlaps = np.where(same & ~target.crowd, iou(boxes, target.boxes), -1)
    best = overlaps.argmax(axis=1)
    hit = overlaps[np.arange(len(boxes)), best] >= MATCH_IOU
    inside = (crowded(boxes, target.boxes) & same & target.crowd).any(axis=1)
    return np.where(hit, best, -1), np.where(hit, target.difficult[best], inside)
