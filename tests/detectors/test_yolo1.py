"""The first YOLO: its loss against equation 3 of the paper, and the traps that copies of it fell into."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Losses
from boxcrew.data.config import DataConfig
from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.data.loading.workers import Workers
from boxcrew.detectors.yolo1 import Yolo1, Yolo1Config
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.data import EvalOptions, LoaderOptions, OpenOptions
from boxcrew.tasks.detection import DetectionConfig, DetectionData
from boxcrew.testing.detectors import noise_batch
from tests.helpers.tiny import BACKBONE

SIDE, GRID, CLASSES = 64, 2, ("cup", "pot", "tea")
Object = tuple[tuple[float, float, float, float], int]
"""A box xyxy in pixels, and a class."""


def tiny(**settings: Any) -> Yolo1:
    torch.manual_seed(0)
    values = {"size": SIDE, "grid": GRID, "backbone": BACKBONE, "neck": 8, "hidden": 16, **settings}
    return Yolo1(Yolo1Config.of({"name": "yolo1", **values}), CLASSES)


def batch_of(*images: Sequence[Object]) -> Batch:
    most = max(1, *map(len, images))
    boxes, labels = torch.zeros(len(images), most, 4), torch.full((len(images), most), -1)
    for row, objects in enumerate(images):
        for column, (box, label) in enumerate(objects):
            boxes[row, column], labels[row, column] = torch.tensor(box), label
    return Batch(
        inputs=torch.zeros(len(images), 3, SIDE, SIDE, dtype=torch.uint8),
        targets={"boxes": boxes, "labels": labels},
        keys=tuple(map(str, range(len(images)))),
    )


@functools.cache
def shared() -> Yolo1:
    return tiny()


def losses_of(numbers: Tensor, batch: Batch) -> Losses:
    """The losses of a network with these outputs (N, S², 5 B + C)."""
    detector = shared()
    detector._numbers = lambda *_: numbers  # type: ignore[method-assign]
    return detector.losses(batch)


def iou(first: Sequence[float], second: Sequence[float]) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    shared = max(0.0, width) * max(0.0, height)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return shared / (areas[0] + areas[1] - shared)


def predicted(numbers: Sequence[float], column: int, row: int) -> tuple[float, float, float, float]:
    """The box of four numbers in a cell, in pixels."""
    x, y, root_w, root_h = numbers
    x, y, w, h = (column + x) / GRID, (row + y) / GRID, root_w**2, root_h**2
    corners = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
    return corners[0] * SIDE, corners[1] * SIDE, corners[2] * SIDE, corners[3] * SIDE


def equation_3(numbers: Tensor, objects: dict[tuple[int, int], Object]) -> dict[str, float]:
    """The loss of one image, (S², 5 B + C), with at most one object in a cell, by (column, row)."""
    terms = dict.fromkeys(("center", "size", "object", "no_object", "class"), 0.0)
    for row in range(GRID):
        for column in range(GRID):
            values = numbers[row * GRID + column].tolist()
            boxes, classes = [values[0:5], values[5:10]], values[10:]
            learned = objects.get((column, row))
            responsible = None
            if learned is not None:
                box, label = learned
                overlaps = [iou(predicted(numbers[:4], column, row), box) for numbers in boxes]
                responsible = overlaps.index(max(overlaps))
                x, y, root_w, root_h, confidence = boxes[responsible]
                wanted_x = (box[0] + box[2]) / 2 / SIDE * GRID - column
                wanted_y = (box[1] + box[3]) / 2 / SIDE * GRID - row
                w, h = (box[2] - box[0]) / SIDE, (box[3] - box[1]) / SIDE
                terms["center"] += 5 * ((x - wanted_x) ** 2 + (y - wanted_y) ** 2)
                terms["size"] += 5 * ((root_w - math.sqrt(w)) ** 2 + (root_h - math.sqrt(h)) ** 2)
                terms["object"] += (confidence - max(overlaps)) ** 2
                terms["class"] += sum((p - (i == label)) ** 2 for i, p in enumerate(classes))
            others = [box for number, box in enumerate(boxes) if number != responsible]
            terms["no_object"] += 0.5 * sum(box[4] ** 2 for box in others)
    return terms


def random_numbers(num_images: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(num_images, GRID**2, 10 + len(CLASSES), generator=generator, dtype=torch.float64)


FIRST: Object = ((4, 6, 30, 40), 1)  # its center is in the cell (0, 0)
SECOND: Object = ((30, 10, 60, 22), 2)  # (1, 0)
THIRD: Object = ((40, 36, 62, 64), 0)  # (1, 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_equation_3(seed: int) -> None:
    numbers = random_numbers(2, seed=seed)
    losses = losses_of(numbers, batch_of([FIRST, SECOND], [THIRD]))
    by_hand = [
        equation_3(numbers[0], {(0, 0): FIRST, (1, 0): SECOND}),
        equation_3(numbers[1], {(1, 1): THIRD}),
    ]
    for name, value in losses.terms.items():
        assert float(value) == pytest.approx(sum(terms[name] for terms in by_hand), rel=1e-9), name
    assert losses.terms.keys() == by_hand[0].keys()


def test_the_loss_is_divided_by_images() -> None:
    """Whatever they hold: a rate that depends on the number of objects would hang on the batch."""
    numbers = random_numbers(3)
    assert float(losses_of(numbers, batch_of([FIRST, SECOND], [THIRD], [])).weight) == 3
    assert float(losses_of(numbers[:1], batch_of([])).weight) == 1


def test_the_fellow_of_the_responsible_box_learns_that_it_has_no_object() -> None:
    numbers = random_numbers(1).requires_grad_()
    gradients = torch.autograd.grad(losses_of(numbers, batch_of([FIRST])).total(), numbers)[0][0, 0]
    overlaps = [iou(predicted(numbers[0, 0, i : i + 4].tolist(), 0, 0), FIRST[0]) for i in (0, 5)]
    fellow = 5 * overlaps.index(min(overlaps))
    assert (gradients[fellow : fellow + 4] == 0).all(), "it learns no place"
    assert float(gradients[fellow + 4]) == pytest.approx(numbers[0, 0, fellow + 4].item())  # of 0.5 c²
    assert (gradients[5 - fellow : 9 - fellow] != 0).all()


def test_confidence_learns_the_iou_and_does_not_move_the_box() -> None:
    numbers = random_numbers(1).requires_grad_()
    losses = losses_of(numbers, batch_of([FIRST]))
    (gradient,) = torch.autograd.grad(losses.terms["object"], numbers)
    assert (gradient != 0).sum() == 1, "nothing but the confidence of the responsible box"
    exact = numbers.detach().clone()
    x, y = 17 / 64 * GRID, 23 / 64 * GRID
    exact[0, 0, :4] = torch.tensor([x, y, math.sqrt(26 / 64), math.sqrt(34 / 64)])
    exact[0, 0, 4] = 1
    terms = losses_of(exact, batch_of([FIRST])).terms
    assert all(float(terms[name]) < 1e-12 for name in ("center", "size", "object"))
    half = exact.clone()
    half[0, 0, 3] = math.sqrt(17 / 64)  # half as high: the IoU is 0.5
    half[0, 0, 4] = 0.5
    assert float(losses_of(half, batch_of([FIRST])).terms["object"]) < 1e-12


def test_roots_below_zero_are_finite_and_learn_to_be_above() -> None:
    numbers = (random_numbers(1) - 2).requires_grad_()
    losses = losses_of(numbers, batch_of([FIRST]))
    (gradient,) = torch.autograd.grad(losses.total(), numbers)
    assert losses.total().isfinite()
    assert gradient.isfinite().all()
    learned = gradient[0, 0, [2, 3, 7, 8]]
    assert (learned < 0).sum() == 2, "those of the responsible box grow"


def test_if_no_box_overlaps_the_nearest_is_responsible() -> None:
    numbers = torch.zeros(1, GRID**2, 10 + len(CLASSES), dtype=torch.float64)
    numbers[0, 0, [0, 1]] = 5.0  # far to the right and below, of no size
    numbers[0, 0, [5, 6]] = 2.0
    numbers.requires_grad_()
    (gradient,) = torch.autograd.grad(losses_of(numbers, batch_of([FIRST])).terms["center"], numbers)
    assert (gradient[0, 0, :5] == 0).all()
    assert (gradient[0, 0, 5:7] > 0).all()


@pytest.mark.parametrize("corner", [(60, 60, 68, 68), (64, 64, 64, 64), (-4, 60, 4, 68), (-8, -8, 4, 4)])
def test_a_center_on_the_border_belongs_to_the_last_cell(corner: tuple[float, ...]) -> None:
    box = (corner[0], corner[1], corner[2], corner[3])
    numbers = random_numbers(1).requires_grad_()
    (gradient,) = torch.autograd.grad(losses_of(numbers, batch_of([(box, 0)])).terms["class"], numbers)
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    cell = GRID * int(y > 32) + int(x > 32)
    assert gradient[0].abs().sum(dim=1).nonzero().flatten().tolist() == [cell]


def test_of_two_objects_in_a_cell_one_is_learned_and_the_draw_decides() -> None:
    small: Object = ((2, 2, 12, 12), 0)
    numbers = random_numbers(1)
    alone = [float(losses_of(numbers, batch_of([each])).total()) for each in (FIRST, small)]
    both = batch_of([FIRST, small])
    seen = []
    for draw in range(40):
        drawn = replace(both, draws=torch.tensor([draw * 7919]))
        value = float(losses_of(numbers, drawn).total())
        assert any(value == pytest.approx(each, rel=1e-12) for each in alone), "never a mixture of both"
        seen.append(alone.index(min(alone, key=lambda each: abs(each - value))))
    assert 8 < sum(seen) < 32


def test_dropout_comes_from_the_draw_and_only_in_training() -> None:
    detector, batch = tiny(hidden=200), noise_batch((SIDE, SIDE), (2, 1))
    before = torch.get_rng_state()
    detector.train()
    for layer in detector.children():
        layer.eval()
    with torch.no_grad():
        kept = detector._numbers(batch.inputs, None)
        first, again = (detector._numbers(batch.inputs, batch.draws) for _ in range(2))
        turned = detector._numbers(batch.inputs.flip(0), batch.draws.flip(0)).flip(0)
        other = detector._numbers(batch.inputs, batch.draws + 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    torch.testing.assert_close(first, turned)
    assert not torch.equal(first, other)
    assert not torch.equal(first, kept)
    with torch.no_grad():
        in_training = detector.losses(batch).total()
        assert not torch.equal(in_training, detector.eval().losses(batch).total())


def test_a_detection_is_scored_by_confidence_times_class() -> None:
    numbers = torch.zeros(1, GRID**2, 10 + len(CLASSES))
    cell = numbers[0, 3]  # column 1, row 1
    cell[5:10] = torch.tensor([0.25, 0.5, math.sqrt(0.25), -math.sqrt(0.5), 0.8])
    cell[10:] = torch.tensor([-0.5, 0.9, 1.7])
    (found,) = tiny().decode((numbers,), (SIDE, SIDE)).unpad()
    assert found.labels.tolist() == [2, 1]
    torch.testing.assert_close(torch.from_numpy(found.scores), torch.tensor([0.8, 0.72]))
    torch.testing.assert_close(torch.from_numpy(found.boxes)[0], torch.tensor([32.0, 32.0, 48.0, 64.0]))


@pytest.mark.parametrize("head", ["fc", "conv"])
@pytest.mark.parametrize(("size", "grid"), [(64, 2), (128, 2), (96, 3), (224, 7)])
def test_the_grid_is_reached_from_any_size_that_fits(size: int, grid: int, head: str) -> None:
    detector = tiny(size=size, grid=grid, head=head, boxes=3).eval()
    with torch.no_grad():
        (raw,) = detector(torch.zeros(1, 3, size, size))
    assert raw.shape == (1, grid**2, 15 + len(CLASSES))


@pytest.mark.parametrize(
    ("settings", "message", "advice"),
    [
        ({"size": 100, "grid": 7}, "size=100: cannot be divided into detector.grid=7 cells", "size=224"),
        ({"size": 112, "grid": 7}, r"\(stride 32\) does not make 7 x 7 cells", "size=224 or size=448"),
        ({"backbone": "resnet1"}, "detector.backbone=resnet1: no such timm network", ""),
        ({"size": "64,96"}, "one size only", ""),
        ({"size": "64:96"}, "squares only", ""),
    ],
)
def test_what_cannot_work_is_said_with_advice(settings: dict[str, Any], message: str, advice: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        tiny(**settings)
    assert advice in (caught.value.advice or "")


def num_cells(record: Record, *, grid: int) -> int:
    """The cells that some object of an image has its center in."""
    centers = (record.target.boxes[:, :2] + record.target.boxes[:, 2:]) / 2
    cells = (centers / (record.width, record.height) * grid).astype(int)
    return len({tuple(cell) for cell in cells.tolist()})


def test_sixteen_images_are_learned_by_heart(tmp_path: Path) -> None:
    with mock.patch.object(ShelfSource, "num_images", {"train": 100}):
        shelf = open_source("shelf")
    alone = [record for record in shelf.split("train") if num_cells(record, grid=5) == len(record.target)]
    shelf.splits = {"train": tuple(alone[:16])}
    write_source(shelf, tmp_path / "shelf", format="voc")
    config = DetectionConfig.of(
        {
            "name": "detection",
            "detector": {
                "name": "yolo1",
                "backbone": BACKBONE,
                "size": 160,
                "grid": 5,
                "neck": 64,
                "hidden": 256,
                "dropout": 0,
            },
            "transforms": {"expand": 1, "crop": False, "flip": 0, "color": 0},
        }
    )
    data = DataConfig(path=str(tmp_path / "shelf"), val="train")
    task_data = DetectionData.open(config, OpenOptions(data=data, seed=0))
    torch.manual_seed(0)
    task = task_data.task().train()
    batch = next(task_data.loader(LoaderOptions(batch=16, seed=0)).batches())
    optimizer = torch.optim.AdamW(task.parameters(), lr=3e-3, fused=True)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=55, pct_start=0.1)
    for step in range(55):
        losses = task(replace(batch, draws=batch.draws + step))
        optimizer.zero_grad()
        (losses.total() / losses.divisor).backward()
        optimizer.step()
        rates.step()
    with eval_mode(task):
        options = EvalOptions(batch=16, workers=Workers())
        evaluation = task_data.evaluate(task, lambda inputs: inputs, options)
    assert evaluation.numbers["AP50"] > 0.95
