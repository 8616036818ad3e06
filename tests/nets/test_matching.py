"""Which default box answers for which object, against a slow implementation, one image and pair at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from boxcrew.nets import matching
from boxcrew.nets.anchors import Level, default_boxes, paper_shapes, to_xyxy
from boxcrew.nets.matching import NO_MATCH, hard_negatives, match

SIZE = 96


def anchors_of_two_maps() -> Tensor:
    """(216, 4) xyxy: 32 and 64 px boxes on maps of 6 and 3 cells a side, unlike a real set only in number."""
    levels = [
        Level(height=n, width=n, step=(1 / n, 1 / n), shapes=paper_shapes(s, s * 1.5, (2.0,)))
        for n, s in ((6, 1 / 3), (3, 2 / 3))
    ]
    return to_xyxy(default_boxes(levels, size=SIZE))


ANCHORS = anchors_of_two_maps()


def random_objects(seed: int, *, num_images: int, num_objects: int, side: float) -> tuple[Tensor, Tensor]:
    """Boxes (B, M, 4) up to `side` px wide inside the image, and which of them are real."""
    draw = torch.Generator().manual_seed(seed)
    sides = 1 + torch.rand(num_images, num_objects, 2, generator=draw) * (side - 1)
    low = torch.rand(num_images, num_objects, 2, generator=draw) * (SIZE - sides)
    valid = torch.rand(num_images, num_objects, generator=draw) < 0.8
    return torch.cat((low, low + sides), dim=-1), valid


def iou_of(first: list[float], second: list[float]) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    area = [(b[2] - b[0]) * (b[3] - b[1]) for b in (first, second)]
    return width * height / (area[0] + area[1] - width * height)


def match_slowly(boxes: list[list[float]], anchors: list[list[float]], threshold: float) -> list[int]:
    """One image, no padding."""
    table = [[iou_of(box, anchor) for anchor in anchors] for box in boxes]
    answer = [NO_MATCH] * len(anchors)
    for a in range(len(anchors)):
        best = max(range(len(boxes)), key=lambda o: table[o][a])
        if table[best][a] >= threshold:
            answer[a] = best
    free = set(range(len(anchors)))
    for o in sorted(range(len(boxes)), key=lambda o: -max(table[o])):
        chosen = max(sorted(free), key=lambda a: table[o][a])
        free.remove(chosen)
        answer[chosen] = o
    return answer


@pytest.mark.parametrize("side", [8.0, 90.0])
@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_matches_are_those_of_the_slow_implementation(side: float, threshold: float) -> None:
    # In double precision, so that two ways of adding do not break ties differently.
    anchors = ANCHORS.double()
    boxes, valid = random_objects(3, num_images=4, num_objects=7, side=side)
    matches = match(boxes.double(), valid, anchors, threshold=threshold)
    for image in range(4):
        real = valid[image].nonzero().flatten().tolist()
        slow = match_slowly(boxes[image, real].double().tolist(), anchors.tolist(), threshold)
        same = [real[o] if o >= 0 else NO_MATCH for o in slow]
        differ = [a for a in range(len(anchors)) if same[a] != matches[image, a]]
        # Boxes inside several default boxes of one size overlap them alike: either may be chosen.
        for a in differ:
            objects = {same[a], int(matches[image, a])} - {NO_MATCH}
            best = [max(iou_of(boxes[image, o].tolist(), b) for b in anchors.tolist()) for o in objects]
            here = [iou_of(boxes[image, o].tolist(), anchors[a].tolist()) for o in objects]
            assert here == pytest.approx(best, rel=1e-5)


@given(st.integers(0, 10**6), st.sampled_from([2.0, 8.0, 40.0]), st.integers(1, 12))
@settings(max_examples=60)
def test_every_object_has_a_default_box(seed: int, side: float, num_objects: int) -> None:
    boxes, valid = random_objects(seed, num_images=2, num_objects=num_objects, side=side)
    for matches, real in zip(match(boxes, valid, ANCHORS, threshold=0.5), valid, strict=True):
        assert set(matches.tolist()) - {NO_MATCH} == set(real.nonzero().flatten().tolist())


def test_objects_that_want_the_same_default_box_all_get_one() -> None:
    same = torch.tensor([40.0, 40, 48, 48]).repeat(1, 10, 1)
    matches = match(same, torch.ones(1, 10, dtype=torch.bool), ANCHORS, threshold=0.5)
    assert set(matches[0].tolist()) == {NO_MATCH, *range(10)}


def test_the_object_that_overlaps_more_chooses_first() -> None:
    anchors = torch.tensor([[0.0, 0, 10, 10], [100, 100, 400, 400]])
    worse, better = [0.0, 0, 4, 4], [0.0, 0, 5, 5]
    for boxes in ([worse, better], [better, worse]):
        matches = match(torch.tensor([boxes]), torch.ones(1, 2, dtype=torch.bool), anchors, threshold=0.5)
        assert matches[0].tolist() == [boxes.index(better), NO_MATCH]  # the other overlaps nothing else


def test_the_threshold_itself_is_a_match_and_less_is_not() -> None:
    anchors = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5], [0, 0, 10, 4.9]])
    matches = match(torch.tensor([[[0.0, 0, 10, 10]]]), torch.tensor([[True]]), anchors, threshold=0.5)
    assert matches[0].tolist() == [0, 0, NO_MATCH]


@pytest.mark.parametrize("fill", [0.0, 50.0, float("nan"), float("inf")])
def test_padding_changes_nothing_whatever_is_in_it(fill: float) -> None:
    boxes, valid = random_objects(5, num_images=3, num_objects=4, side=60)
    valid = torch.ones_like(valid)
    padded = torch.cat((boxes, torch.full((3, 2, 4), fill)), dim=1)
    wider = torch.cat((valid, torch.zeros(3, 2, dtype=torch.bool)), dim=1)
    matches = match(padded, wider, ANCHORS, threshold=0.5)
    assert torch.equal(matches, match(boxes, valid, ANCHORS, threshold=0.5))
    nothing = match(padded, torch.zeros_like(wider), ANCHORS, threshold=0.5)
    assert (nothing == NO_MATCH).all()


def test_a_box_without_extent_takes_no_default_box() -> None:
    boxes = torch.tensor([[[30.0, 30, 30, 50], [10, 10, 40, 40]]])
    matches = match(boxes, torch.ones(1, 2, dtype=torch.bool), ANCHORS, threshold=0.5)
    assert set(matches[0].tolist()) == {NO_MATCH, 1}


def test_a_few_images_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, valid = random_objects(7, num_images=5, num_objects=6, side=60)
    before = boxes.clone(), valid.clone()
    at_once = match(boxes, valid, ANCHORS, threshold=0.5)
    for pairs in (1, 6 * len(ANCHORS), 12 * len(ANCHORS)):
        monkeypatch.setattr(matching, "_MAX_PAIRS", pairs)
        assert torch.equal(match(boxes, valid, ANCHORS, threshold=0.5), at_once)
    assert torch.equal(boxes, before[0])
    assert torch.equal(valid, before[1])


def test_negatives_are_three_to_one_in_each_image_and_the_hardest() -> None:
    draw = torch.Generator().manual_seed(0)
    loss = torch.rand(4, 50, generator=draw)
    positive = torch.zeros(4, 50, dtype=torch.bool)
    for image, count in enumerate((0, 1, 5, 20)):
        positive[image, torch.randperm(50, generator=draw)[:count]] = True
    chosen = hard_negatives(loss, positive, ratio=3)
    assert chosen.sum(dim=1).tolist() == [0, 3, 15, 30]  # the last has no more
    assert not (chosen & positive).any()
    for image in (1, 2):
        left = ~chosen[image] & ~positive[image]
        assert loss[image][chosen[image]].min() >= loss[image][left].max()


def test_ties_are_broken_by_position() -> None:
    positive = torch.tensor([[False, True, False, False, False, False]])
    chosen = hard_negatives(torch.zeros(1, 6), positive, ratio=3)
    assert chosen.tolist() == [[True, False, True, True, False, False]]


def test_without_negatives_none_are_chosen() -> None:
    assert not hard_negatives(torch.rand(2, 8), torch.ones(2, 8, dtype=torch.bool), ratio=3).any()


def test_choosing_negatives_changes_no_argument_and_needs_no_gradient() -> None:
    loss = torch.rand(2, 8, requires_grad=True)
    before = loss.detach().clone()
    chosen = hard_negatives(loss * 1, torch.eye(2, 8, dtype=torch.bool), ratio=1)
    assert not chosen.requires_grad
    assert torch.equal(loss.detach(), before)
