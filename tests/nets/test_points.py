"""Anchor points and the task-aligned assigner, against a slow loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.ops import box_iou, generalized_box_iou

from boxcrew.nets.points import (
    ALPHA,
    BETA,
    Points,
    assign_aligned,
    boxes_at,
    cell_centers,
    distances_to,
    paired_giou,
)

STRIDES = (8, 16)


def some_points() -> Points:
    return cell_centers([torch.zeros(1, 1, 48 // stride, 64 // stride) for stride in STRIDES], STRIDES)


def scene(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return scores, boxes, objects and labels of two images; the second has one object, the first three."""
    draw = torch.Generator().manual_seed(seed)
    points = some_points()
    num = len(points.centers)
    scores = torch.rand(2, num, 3, generator=draw)
    boxes = boxes_at(points, torch.rand(2, num, 4, generator=draw) * 3)
    low = torch.rand(2, 3, 2, generator=draw) * 30
    objects = torch.cat((low, low + 2 + torch.rand(2, 3, 2, generator=draw) * 30), dim=-1)
    labels = torch.randint(0, 3, (2, 3), generator=draw)
    labels[1, 1:] = -1
    return scores, boxes, objects.masked_fill((labels < 0)[..., None], 0), labels


def test_the_centers_of_cells() -> None:
    points = some_points()
    assert points.centers[:3].tolist() == [[4, 4], [12, 4], [20, 4]]
    assert points.centers[8].tolist() == [4, 12]
    assert points.centers[48].tolist() == [8, 8]
    assert points.strides[[0, 47, 48]].tolist() == [8, 8, 16]


def test_distances_and_boxes_are_inverse() -> None:
    points = some_points()
    boxes = torch.rand(2, len(points.centers), 4)
    torch.testing.assert_close(boxes_at(points, distances_to(points, boxes)), boxes, rtol=0, atol=1e-4)


def slowly(
    points: Points, scores: Tensor, boxes: Tensor, objects: Tensor, labels: Tensor, num: int
) -> Tensor:
    """Return (P, 2): object and quality of each point of one image, by loops; -1 and 0 where none."""
    iou = box_iou(objects, boxes)
    wanted: dict[int, list[int]] = {}
    alignments: dict[tuple[int, int], float] = {}
    for m, (x0, y0, x1, y1) in enumerate(objects.tolist()):
        candidates = []
        for p, ((x, y), stride) in enumerate(
            zip(points.centers.tolist(), points.strides.tolist(), strict=True)
        ):
            grow_x, grow_y = (max(0, stride - side) / 2 for side in (x1 - x0, y1 - y0))
            if labels[m] >= 0 and x0 - grow_x <= x <= x1 + grow_x and y0 - grow_y <= y <= y1 + grow_y:
                offset = ((x - (x0 + x1) / 2) ** 2 + (y - (y0 + y1) / 2) ** 2) / stride**2
                prior = 1e-3 * torch.exp(torch.tensor(-offset / 2))
                aligned = scores[p, labels[m]] ** ALPHA * iou[m, p] ** BETA + prior
                alignments[m, p] = float(aligned)
                candidates.append(p)
        for p in sorted(candidates, key=lambda p: -alignments[m, p])[:num]:
            wanted.setdefault(p, []).append(m)
    owners = {p: max(by, key=lambda m: float(iou[m, p])) for p, by in wanted.items()}
    result = torch.tensor([[-1.0, 0.0]] * len(points.centers))
    for p, m in owners.items():
        result[p] = torch.tensor([m, float(iou[m, p])])
    return result


@pytest.mark.parametrize("seed", range(6))
def test_points_are_assigned_as_by_a_slow_loop(seed: int) -> None:
    points, (scores, boxes, objects, labels) = some_points(), scene(seed)
    assigned = assign_aligned(points, scores, boxes, objects=objects, labels=labels, num_points=5)
    for image in range(2):
        expected = slowly(points, scores[image], boxes[image], objects[image], labels[image], 5)
        torch.testing.assert_close(assigned.quality[image], expected[:, 1])
        learns = expected[:, 1] > 0
        assert assigned.owner[image][learns].tolist() == expected[learns, 0].tolist()


@pytest.mark.parametrize("image", [0, 1])
def test_an_image_alone_is_assigned_as_in_a_batch(image: int) -> None:
    points, tensors = some_points(), scene(1)
    scores, boxes, objects, labels = tensors
    together = assign_aligned(points, scores, boxes, objects=objects, labels=labels, num_points=5)
    num_objects = int((labels[image] >= 0).sum())  # without the padding of the batch
    scores, boxes, objects, labels = (values[image : image + 1] for values in tensors)
    objects, labels = objects[:, :num_objects], labels[:, :num_objects]
    alone = assign_aligned(points, scores, boxes, objects=objects, labels=labels, num_points=5)
    assert torch.equal(alone.owner[0], together.owner[image])
    assert torch.equal(alone.quality[0], together.quality[image])


def test_an_untrained_network_has_points_to_learn_from() -> None:
    points = some_points()
    num = len(points.centers)
    boxes = boxes_at(points, torch.full((1, num, 4), 0.01))
    objects = torch.tensor([[[10.0, 10.0, 40.0, 40.0]]])
    assigned = assign_aligned(
        points, torch.zeros(1, num, 3), boxes, objects=objects, labels=torch.tensor([[1]]), num_points=10
    )
    assert int((assigned.quality > 0).sum()) == 10


def test_a_tiny_object_between_points_has_one() -> None:
    points, objects = some_points(), torch.tensor([[[15.9, 15.9, 16.1, 16.1]]])
    num = len(points.centers)
    boxes = boxes_at(points, torch.ones(1, num, 4))
    assigned = assign_aligned(
        points, torch.zeros(1, num, 3), boxes, objects=objects, labels=torch.tensor([[1]]), num_points=10
    )
    assert int((assigned.quality > 0).sum()) >= 1


def test_giou_of_pairs_is_torchvisions() -> None:
    _, _, objects, _ = scene(3)
    first, second = objects[0], objects[0].roll(1, dims=0) + 5
    expected = generalized_box_iou(first, second).diagonal()
    torch.testing.assert_close(paired_giou(first, second), expected)
