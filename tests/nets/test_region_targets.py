"""Labels and proposals are torchvision's, but for objects that no anchor touches; choices are keyed."""

from __future__ import annotations

import torch
from torch import Tensor
from torchvision.models.detection._utils import BoxCoder, Matcher
from torchvision.models.detection.rpn import AnchorGenerator, RegionProposalNetwork, RPNHead

from boxcrew.nets.anchor_grid import AnchorGrid, best_overlaps, cell_shapes
from boxcrew.nets.anchors import to_xyxy
from boxcrew.nets.region_head import CODE, RegionChoice, sample_regions
from boxcrew.nets.region_targets import OverlapRule, Truth, label_boxes
from boxcrew.nets.rpn import AnchorScores, ProposalLimits, propose
from boxcrew.nets.static import hashed_keys

SIDE = 128
GRIDS = [
    AnchorGrid(stride=stride, shapes=cell_shapes((size,), (0.5, 1, 2), rounded=True), at_corners=True)
    for stride, size in ((8, 24), (16, 48), (32, 96))
]

RPN = OverlapRule(positive_iou=0.7, negative_iou=0.3, best_too=True)


def anchors_of_levels() -> list[Tensor]:
    like = torch.zeros(1)
    return [grid.on_map(SIDE // grid.stride, SIDE // grid.stride, like=like) for grid in GRIDS]


def some_truth(num: int = 4, *, seed: int = 0) -> Truth:
    draw = torch.Generator().manual_seed(seed)
    sides = 12 + torch.rand(2, num, 2, generator=draw) * 80
    low = torch.rand(2, num, 2, generator=draw) * (SIDE - sides)
    labels = torch.randint(0, 3, (2, num), generator=draw)
    labels[1, 2:] = -1
    boxes = torch.cat((low, low + sides), dim=-1).masked_fill((labels < 0)[..., None], 0)
    return truth_of(boxes, labels)


def truth_of(boxes: Tensor, labels: Tensor, difficult: Tensor | None = None) -> Truth:
    difficult = torch.zeros_like(labels, dtype=torch.bool) if difficult is None else difficult
    targets = {"boxes": boxes, "labels": labels, "difficult": difficult}
    return Truth.of(targets, torch.float32)


def test_labels_of_anchors_are_torchvisions() -> None:
    anchors, truth = to_xyxy(torch.cat(anchors_of_levels())), some_truth()
    ours = label_boxes(anchors, truth, RPN)
    rpn = _their_rpn()
    targets = [{"boxes": boxes[labels >= 0]} for boxes, labels in zip(truth.boxes, truth.labels, strict=True)]
    labels, boxes = rpn.assign_targets_to_anchors([anchors, anchors], targets)
    assert all((row == value).any() for row in labels for value in (-1, 0, 1))
    for i, row in enumerate(labels):
        assert torch.equal(ours.positive[i], row == 1)
        assert torch.equal(ours.negative[i], row == 0)
        positive = ours.positive[i]
        assert torch.equal(truth.boxes_of(ours.owner)[i][positive], boxes[i][positive])


def test_an_object_that_no_anchor_touches_makes_no_anchor_positive() -> None:
    anchors = torch.tensor([[0.0, 0, 10, 10], [10, 0, 20, 10]])
    truth = truth_of(torch.tensor([[[50.0, 50, 60, 60]]]), torch.tensor([[0]]))
    labels = label_boxes(anchors, truth, RPN)
    assert not labels.positive.any()
    assert labels.negative.all()
    theirs = Matcher(0.7, 0.3, allow_low_quality_matches=True)(torch.zeros(1, 2))
    assert (theirs == 0).all(), "torchvision no longer makes them all positive"


def test_difficult_objects_are_neither_learned_nor_background() -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 10], [40, 0, 50, 10]]])
    truth = truth_of(boxes, torch.tensor([[0, 0]]), torch.tensor([[True, False]]))
    anchors = torch.tensor([[0.0, 0, 10, 10], [40, 0, 50, 10], [80, 0, 90, 10]])
    labels = label_boxes(anchors, truth, RPN)
    assert labels.positive.tolist() == [[False, True, False]]
    assert labels.negative.tolist() == [[False, False, True]]


def test_without_objects_everything_is_background() -> None:
    truth = truth_of(torch.zeros(1, 1, 4), torch.tensor([[-1]]))
    labels = label_boxes(torch.rand(5, 4).cumsum(1), truth, RPN)
    assert labels.negative.all()


def _their_rpn() -> RegionProposalNetwork:
    sizes = tuple((int(size),) for size in (24, 48, 96))
    return RegionProposalNetwork(
        AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * 3),
        RPNHead(4, 3),
        0.7,
        0.3,
        256,
        0.5,
        {"training": 50, "testing": 50},
        {"training": 30, "testing": 30},
        0.7,
    ).eval()


def test_proposals_are_torchvisions() -> None:
    draw = torch.Generator().manual_seed(3)
    by_level = anchors_of_levels()
    sizes = [len(anchors) for anchors in by_level]
    # No two are so near that they have the same rank.
    orders = [torch.randperm(sum(sizes), generator=draw) for _ in range(2)]
    parts = torch.split(torch.stack(orders) / 64 - 4, sizes, dim=1)
    levels = [
        AnchorScores(
            objectness=part,
            offsets=torch.randn(2, len(anchors), 4, generator=draw) * 0.4,
            anchors=anchors,
        )
        for part, anchors in zip(parts, by_level, strict=True)
    ]
    limits = ProposalLimits(candidates=50, count=30, iou=0.7, min_score=0.0)
    ours = propose(levels, (SIDE, SIDE), limits)
    rpn = _their_rpn()
    anchors = to_xyxy(torch.cat([level.anchors for level in levels]))
    offsets = torch.cat([level.offsets for level in levels], dim=1)
    decoded = rpn.box_coder.decode(offsets.flatten(0, 1), [anchors, anchors]).view(2, -1, 4)
    objectness = torch.cat([level.objectness for level in levels], dim=1)
    theirs, _ = rpn.filter_proposals(decoded, objectness, [(SIDE, SIDE)] * 2, sizes)
    assert ours.valid.all()
    for i, boxes in enumerate(theirs):
        torch.testing.assert_close(ours.boxes[i], boxes, rtol=1e-4, atol=1e-3)
        own = anchors[ours.anchors[i]]
        torch.testing.assert_close(
            rpn.box_coder.decode_single(offsets[i][ours.anchors[i]], own).clamp(0, SIDE),
            boxes,
            rtol=1e-4,
            atol=1e-3,
        )


CHOICE = RegionChoice(count=16, positive_share=0.25, positive_iou=0.5)


def some_regions(truth: Truth) -> Tensor:
    """Return regions (2, 60, 4), half of them near objects."""
    draw = torch.Generator().manual_seed(4)
    near = truth.boxes[:, torch.arange(30) % 2] + torch.randn(2, 30, 4, generator=draw) * 2
    low = torch.rand(2, 30, 2, generator=draw) * 90
    far = torch.cat((low, low + 5 + torch.rand(2, 30, 2, generator=draw) * 30), dim=-1)
    return torch.cat((near, far), dim=1)


def test_region_targets_are_torchvisions() -> None:
    truth = some_truth()
    regions = some_regions(truth)
    sample = sample_regions(
        regions, torch.ones(2, 60, dtype=torch.bool), hashed_keys(torch.tensor([5, 6]), 60), truth, CHOICE
    )
    coder = BoxCoder((10.0, 10.0, 5.0, 5.0))
    for i in range(2):
        learned = truth.labels[i] >= 0
        boxes, labels = truth.boxes[i][learned], truth.labels[i][learned]
        positive = sample.classes[i] > 0
        assert int(positive.sum()) == 4
        assert sample.valid[i].all()
        from torchvision.ops import box_iou

        matches = Matcher(0.5, 0.5)(box_iou(boxes, sample.boxes[i]))
        assert torch.equal(positive, matches >= 0)
        assert torch.equal(sample.classes[i][positive], labels[matches[positive]] + 1)
        wanted = coder.encode_single(boxes[matches[positive]], sample.boxes[i][positive])
        torch.testing.assert_close(sample.offsets[i][positive], wanted, rtol=1e-4, atol=1e-4)
        assert not sample.offsets[i][~positive].any()
    assert CODE.center_variance == 0.1


def test_the_choice_is_the_same_alone_in_a_batch_and_in_another_order() -> None:
    truth, draws = some_truth(), torch.tensor([7, 8])
    regions, valid = some_regions(truth), torch.ones(2, 60, dtype=torch.bool)
    keys = hashed_keys(draws, 60)
    both = sample_regions(regions, valid, keys, truth, CHOICE)
    one = Truth(boxes=truth.boxes[1:, :2], labels=truth.labels[1:, :2], learned=truth.learned[1:, :2])
    alone = sample_regions(regions[1:], valid[1:], keys[1:], one, CHOICE)
    assert torch.equal(alone.boxes[0], both.boxes[1])
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    shuffled = sample_regions(regions[:, order], valid, keys[:, order], truth, CHOICE)
    for i in range(2):
        assert {tuple(box) for box in shuffled.boxes[i].tolist()} == {
            tuple(b) for b in both.boxes[i].tolist()
        }


def test_the_best_anchor_of_a_box_is_the_best_of_all() -> None:
    from torchvision.ops import box_iou

    draw = torch.Generator().manual_seed(5)
    sides = 3 + torch.rand(200, 2, generator=draw) * 120
    low = torch.rand(200, 2, generator=draw) * (SIDE - sides)
    boxes = torch.cat((low, low + sides), dim=-1)
    for at_corners in (True, False):
        grids = [AnchorGrid(stride=g.stride, shapes=g.shapes, at_corners=at_corners) for g in GRIDS]
        anchors = torch.cat([g.on_map(SIDE // g.stride, SIDE // g.stride, like=boxes) for g in grids])
        slowly = box_iou(boxes, to_xyxy(anchors)).amax(dim=1)
        torch.testing.assert_close(best_overlaps(boxes, grids, (SIDE, SIDE)), slowly)
    assert best_overlaps(boxes[:0], GRIDS, (SIDE, SIDE)).shape == (0,)
