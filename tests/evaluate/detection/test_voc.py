"""VOC's two APs against arithmetic by hand and against a slow, plain implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxcrew.core.types import Target
from boxcrew.evaluate.detection.curves import voc07_ap, voc12_ap
from boxcrew.evaluate.detection.matches import class_matches
from boxcrew.evaluate.detection.types import EvaluatedImage

HERE, THERE, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [200, 200, 230, 230]


def both(
    evaluated: Sequence[EvaluatedImage], label: int = 0, num_classes: int = 8
) -> tuple[float | None, float | None]:
    mine = class_matches(evaluated, num_classes=num_classes)[label]
    return voc07_ap(mine), voc12_ap(mine)


def test_by_hand(judge: Any) -> None:
    # Three objects. Best first: right, wrong, right. Precision 1, 1/2, 2/3 at recall 1/3, 1/3, 2/3.
    target = Target.of([HERE, THERE, FAR], [0, 0, 0])
    detections = [(0, 0.9, HERE), (0, 0.8, [50, 50, 60, 60]), (0, 0.7, THERE)]
    voc07, voc12 = both([judge(target, detections)])
    assert voc07 == pytest.approx((4 * 1 + 3 * 2 / 3) / 11)  # recalls 0..0.3, 0.4..0.6, and 0.7..1 missed
    assert voc12 == pytest.approx(1 / 3 + 1 / 3 * 2 / 3)


def test_a_second_detection_of_an_object_is_wrong(judge: Any) -> None:
    target = Target.of([HERE, THERE], [0, 0])
    detections = [(0, 0.9, HERE), (0, 0.8, [0, 0, 10, 9]), (0, 0.7, THERE)]
    assert both([judge(target, detections)])[1] == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)


def test_the_object_overlapped_most_decides_even_if_it_is_taken(judge: Any) -> None:
    # Both detections overlap the first object most; the second also has IoU > 0.5 with the other object.
    target = Target.of([[0, 0, 10, 10], [0, 2, 10, 12]], [0, 0])
    detections = [(0, 0.9, [0, 0, 10, 10]), (0, 0.8, [0, 0.5, 10, 10.5])]
    assert both([judge(target, detections)])[1] == pytest.approx(1 / 2)


def test_iou_of_exactly_one_half_matches_and_no_pixel_is_added(judge: Any) -> None:
    target = Target.of([[0, 0, 2, 2]], [0])
    assert both([judge(target, [(0, 0.9, [0, 0, 2, 1])])]) == (1, 1)
    assert both([judge(target, [(0, 0.9, [0, 0, 2, 0.99])])]) == (0, 0)


@pytest.mark.parametrize("flag", ["difficult", "crowd"])
def test_what_lies_on_an_ignored_object_counts_neither_way(judge: Any, flag: str) -> None:
    target = Target.of([HERE, FAR], [0, 0], **{flag: [False, True]})
    detections = [(0, 0.95, FAR), (0, 0.9, [201, 201, 230, 230]), (0, 0.8, HERE)]
    assert both([judge(target, detections)]) == (1, 1)


def test_what_lies_inside_a_crowd_of_its_class_alone_is_ignored(judge: Any) -> None:
    target = Target.of([HERE, [100, 100, 300, 300]], [0, 0], crowd=[False, True])
    inside, outside = [110, 110, 120, 120], [95, 95, 104, 104]
    assert both([judge(target, [(0, 0.9, inside), (0, 0.8, HERE)])]) == (1, 1)
    assert both([judge(target, [(0, 0.9, outside), (0, 0.8, HERE)])])[1] == pytest.approx(1 / 2)
    other_class = Target.of([HERE, [100, 100, 300, 300]], [0, 1], crowd=[False, True])
    assert both([judge(other_class, [(0, 0.9, inside), (0, 0.8, HERE)])])[1] == pytest.approx(1 / 2)


def test_undefined_without_objects(judge: Any) -> None:
    only_difficult = Target.of([HERE], [0], difficult=[True])
    assert both([judge(only_difficult, [(0, 0.9, HERE)])]) == (None, None)
    assert both([]) == (None, None)
    assert both([judge(Target.of([HERE], [0]), [])]) == (0, 0)


def slow_iou(a: Sequence[float], b: Sequence[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height / (sum(areas) - width * height)


def slow_verdicts(evaluated: Sequence[EvaluatedImage], label: int) -> tuple[list[bool], int]:
    """One detection after the other, as the devkit goes about it (crowds are not in its world)."""
    detections = [
        (score, i, box)
        for i, image in enumerate(evaluated)
        for box, score, mine in zip(
            image.detections.boxes.tolist(),
            image.detections.scores.tolist(),
            image.detections.labels.tolist(),
            strict=True,
        )
        if mine == label
    ]
    taken: set[tuple[int, int]] = set()
    right = []
    for _, i, box in sorted(detections, key=lambda detection: -detection[0]):
        target = evaluated[i].target
        places = [j for j in range(len(target)) if target.labels[j] == label]
        best = max(places, key=lambda j: slow_iou(box, target.boxes[j].tolist()), default=None)
        if best is None or slow_iou(box, target.boxes[best].tolist()) < 0.5:
            right.append(False)
        elif not target.difficult[best]:
            right.append((i, best) not in taken)
            taken.add((i, best))
    objects = [(image.target.labels == label) & ~image.target.difficult for image in evaluated]
    return right, int(sum(mask.sum() for mask in objects))


def slow_aps(right: Sequence[bool], num_objects: int) -> tuple[float, float]:
    points = [(sum(right[: k + 1]) / num_objects, sum(right[: k + 1]) / (k + 1)) for k in range(len(right))]
    voc07 = sum(max((p for r, p in points if r >= t / 10), default=0.0) for t in range(11)) / 11
    voc12, before = 0.0, 0.0
    for k, (recall, _) in enumerate(points):
        voc12 += (recall - before) * max(p for _, p in points[k:])
        before = recall
    return voc07, voc12


def test_equals_a_slow_implementation_on_real_boxes(fashion: list[EvaluatedImage]) -> None:
    evaluated = [image for image in fashion if not image.target.crowd.any()]
    assert len(evaluated) > 50
    for label in range(8):
        assert both(evaluated, label) == pytest.approx(slow_aps(*slow_verdicts(evaluated, label)), abs=1e-9)


boxes = st.tuples(*[st.integers(0, 12)] * 2, *[st.integers(1, 12)] * 2).map(
    lambda b: [b[0], b[1], b[0] + b[2], b[1] + b[3]]
)
images = st.tuples(
    st.lists(st.tuples(st.integers(0, 1), boxes, st.booleans()), max_size=5),
    st.lists(st.tuples(st.integers(0, 1), boxes), max_size=8),
)


@settings(max_examples=150)
@given(drawn=st.lists(images, min_size=1, max_size=3), seed=st.integers(0, 99))
def test_equals_a_slow_implementation_on_any_boxes(judge: Any, drawn: list[Any], seed: int) -> None:
    scores = iter(np.random.default_rng(seed).permutation(100) / 128)
    evaluated = []
    for objects, detections in drawn:
        target = Target.of(
            [box for _, box, _ in objects], [label for label, _, _ in objects], [d for _, _, d in objects]
        )
        evaluated.append(judge(target, [(label, float(next(scores)), box) for label, box in detections]))
    for label in range(2):
        right, num_objects = slow_verdicts(evaluated, label)
        expected = slow_aps(right, num_objects) if num_objects else (None, None)
        assert both(evaluated, label, num_classes=2) == pytest.approx(expected, abs=1e-9)
