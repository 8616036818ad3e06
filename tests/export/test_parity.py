"""The comparison of two lists of detections finds every difference that matters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boxcrew.core.types import Detections
from boxcrew.export.parity import Difference, Parity, compare_detections, is_within


def detections(num: int = 5, *, seed: int = 0) -> Detections:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 200, (num, 2))
    scores = np.sort(rng.uniform(0.1, 1, num))[::-1]
    return Detections.of(np.hstack((corner, corner + 20)), scores, rng.integers(0, 3, num))


def compare(first: Detections, second: Detections, *, most: int = 100) -> Difference:
    forward = compare_detections(first, second, least=0.01, most=most)
    backward = compare_detections(second, first, least=0.01, most=most)
    assert forward.is_allowed == backward.is_allowed
    return forward


def test_the_same_list_has_no_difference() -> None:
    assert compare(detections(), detections()) == Difference()
    assert compare(detections(0), detections(0)) == Difference()


def test_small_differences_are_allowed_and_measured() -> None:
    before = detections()
    moved = replace(before, boxes=before.boxes + np.float32(0.004), scores=before.scores - np.float32(5e-5))
    difference = compare(before, moved)
    assert difference.is_allowed
    assert 0.003 < difference.pixels < 0.005
    assert 4e-5 < difference.score < 6e-5


def test_a_box_that_moves_is_found() -> None:
    before = detections()
    boxes = before.boxes.copy()
    boxes[2, 0] += 0.02
    assert not compare(before, replace(before, boxes=boxes)).is_allowed


def test_a_score_that_changes_is_found() -> None:
    before = detections()
    scores = before.scores.copy()
    scores[1] -= 3e-4
    assert not compare(before, replace(before, scores=scores)).is_allowed


def test_another_class_is_found() -> None:
    before = detections()
    labels = before.labels.copy()
    labels[3] = (labels[3] + 1) % 3
    assert compare(before, replace(before, labels=labels)).unmatched


def test_a_missing_detection_is_found() -> None:
    before = detections()
    without = Detections(boxes=before.boxes[1:], scores=before.scores[1:], labels=before.labels[1:])
    assert compare(before, without).unmatched == 1


def test_two_of_equal_score_may_come_in_either_order() -> None:
    before = detections()
    scores = np.full(5, 0.5, dtype=np.float32)
    turned = slice(None, None, -1)
    other = Detections(boxes=before.boxes[turned], scores=scores, labels=before.labels[turned])
    assert compare(replace(before, scores=scores), other).is_allowed


def test_a_detection_at_the_threshold_may_be_missing() -> None:
    before = detections()
    extra = Detections.of(
        np.vstack((before.boxes, [[1, 1, 9, 9]])), [*before.scores, 0.01005], [*before.labels, 0]
    )
    assert compare(before, extra).is_allowed
    assert not compare(before, replace(extra, scores=np.array([*before.scores, 0.02], np.float32))).is_allowed


def test_the_last_of_a_full_list_may_be_another() -> None:
    before = detections()
    boxes, scores = before.boxes.copy(), before.scores.copy()
    scores[-1] = scores[-2] - np.float32(1e-6)
    boxes[-1] = 0
    other = replace(before, boxes=boxes, scores=scores)
    full = replace(before, scores=scores)
    assert compare(full, other, most=5).is_allowed
    assert not compare(full, other).is_allowed


def without(before: Detections, index: int) -> Detections:
    keep = np.arange(len(before)) != index
    return Detections(boxes=before.boxes[keep], scores=before.scores[keep], labels=before.labels[keep])


def within(exported: Detections, *lists: Detections) -> bool:
    return is_within(exported, lists, least=0.01, most=100)


def test_a_detection_that_depends_on_rounding_may_be_there_or_not() -> None:
    usual = detections()
    other = without(usual, 2)
    assert within(usual, other, usual)
    assert within(other, usual, other)
    assert not within(other, usual)
    assert not within(usual, other)


def test_what_depends_on_rounding_excuses_nothing_else() -> None:
    usual = detections()
    other = without(usual, 2)
    assert not within(without(usual, 1), usual, other)
    assert not within(without(other, 1), usual, other)
    boxes = usual.boxes.copy()
    boxes[4] += 0.02
    assert not within(replace(usual, boxes=boxes), usual, other)
    assert not within(Detections.of(np.zeros((0, 4)), [], []), usual, other)


def test_two_decisions_may_be_those_of_two_roundings() -> None:
    usual = detections()
    both = without(without(usual, 3), 1)
    assert within(both, usual, without(usual, 1), without(usual, 3))
    assert not within(both, usual, without(usual, 1))


def test_the_sum_names_what_differs() -> None:
    parity = Parity.of([("a", Difference(pixels=0.001)), ("b", Difference(unmatched=1)), ("c", Difference())])
    assert (parity.num_samples, parity.num_same, parity.differing) == (3, 2, ("b",))
    assert not parity.holds
    assert parity.sentence("photo").startswith("2 of 3 photos with the same result as torch")
