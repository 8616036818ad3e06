"""The values that pass between the parts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.types import Batch, Detections, Losses, Target


def batch_of(count: int) -> Batch:
    return Batch(
        inputs=torch.arange(count * 12, dtype=torch.uint8).reshape(count, 3, 2, 2),
        targets={"boxes": torch.arange(count * 8.0).reshape(count, 2, 4), "labels": torch.arange(2 * count)},
        keys=tuple(f"image{i}" for i in range(count)),
        draws=torch.arange(count) + 7,
        extra={"regions": torch.arange(count * 12.0).reshape(count, 3, 4)},
    )


def test_a_target_is_made_of_lists() -> None:
    target = Target.of([[0, 0, 2, 3], [1, 1, 2, 2]], [1, 0], difficult=[0, 1])
    assert target.boxes.dtype == np.float32
    assert target.labels.dtype == np.int64
    assert target.difficult.tolist() == [False, True]
    assert target.crowd.tolist() == [False, False]
    assert len(target) == 2
    empty = Target.of([], [])
    assert empty.boxes.shape == (0, 4)


def test_selecting_and_moving_boxes_leaves_the_target_as_it_was() -> None:
    target = Target.of([[0, 0, 2, 3], [1, 1, 2, 2]], [1, 0], crowd=[False, True])
    assert target.select(~target.crowd).labels.tolist() == [1]
    assert target.select(np.array([1, 0])).labels.tolist() == [0, 1]
    assert target.with_boxes(target.boxes + 1).boxes[0].tolist() == [1, 1, 3, 4]
    assert target.boxes[0].tolist() == [0, 0, 2, 3]
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.boxes = target.boxes + 1  # type: ignore[misc]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any))
def test_the_parts_of_a_batch_are_the_batch(sizes: list[int]) -> None:
    batch = batch_of(sum(sizes))
    batch = dataclasses.replace(batch, targets={"boxes": batch.targets["boxes"]})
    pieces = batch.split(sizes)
    assert [len(piece) for piece in pieces] == [size for size in sizes if size]
    assert torch.equal(torch.cat([piece.inputs for piece in pieces]), batch.inputs)
    assert torch.equal(torch.cat([piece.targets["boxes"] for piece in pieces]), batch.targets["boxes"])
    assert torch.equal(torch.cat([piece.draws for piece in pieces]), batch.draws)
    assert torch.equal(torch.cat([piece.extra["regions"] for piece in pieces]), batch.extra["regions"])
    assert sum((piece.keys for piece in pieces), ()) == batch.keys


def test_a_selection_has_all_that_belongs_to_its_samples() -> None:
    batch = batch_of(4)
    chosen = batch.select([3, 1, 1])
    assert chosen.keys == ("image3", "image1", "image1")
    assert chosen.draws.tolist() == [10, 8, 8]
    for name, value in (*batch.targets.items(), *batch.extra.items()):
        if name != "labels":
            assert torch.equal({**chosen.targets, **chosen.extra}[name], value[[3, 1, 1]])


def test_draws_are_zero_unless_given() -> None:
    batch = Batch(inputs=torch.zeros(3, 1), targets={}, keys=("a", "b", "c"))
    assert batch.draws.dtype == torch.int64
    assert batch.draws.tolist() == [0, 0, 0]
    assert dataclasses.replace(batch, draws=torch.tensor([1, 2, 3])).draws.tolist() == [1, 2, 3]


def test_all_tensors_of_a_batch_are_moved() -> None:
    moved = batch_of(2).to("meta")
    tensors = [moved.inputs, moved.draws, *moved.targets.values(), *moved.extra.values()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    unset = Batch(inputs=torch.zeros(2, 1, device="meta"), targets={}, keys=("a", "b"))
    assert unset.draws.device.type == "meta"


def test_options_of_a_move_are_for_the_inputs_alone() -> None:
    moved = batch_of(2).to("cpu", dtype=torch.float32)
    assert moved.inputs.dtype == torch.float32
    assert moved.targets["labels"].dtype == torch.int64


def test_losses_add_up_term_by_term() -> None:
    first = Losses(terms={"a": torch.tensor(1.0), "b": torch.tensor(2.0)}, weight=torch.tensor(3.0))
    both = first + Losses(terms={"b": torch.tensor(5.0), "a": torch.tensor(4.0)}, weight=torch.tensor(1.0))
    assert {name: float(value) for name, value in both.terms.items()} == {"a": 5, "b": 7}
    assert float(both.weight) == 4
    assert float(both.total()) == 12
    with pytest.raises(AssertionError):
        first + Losses(terms={"a": torch.tensor(4.0)}, weight=torch.tensor(1.0))


@pytest.mark.parametrize(("weight", "divisor"), [(0.0, 1.0), (0.25, 0.25), (1.0, 1.0), (7.0, 7.0)])
def test_sums_are_divided_by_their_weight_unless_there_is_none(weight: float, divisor: float) -> None:
    losses = Losses(terms={"a": torch.tensor(1.0)}, weight=torch.tensor(weight))
    assert float(losses.divisor) == divisor
    assert float(losses.weight) == weight


def test_the_total_keeps_the_gradient_and_detach_drops_it() -> None:
    value = torch.tensor(2.0, requires_grad=True)
    losses = Losses(terms={"a": value * 3, "b": value * value}, weight=torch.tensor(1.0))
    (gradient,) = torch.autograd.grad(losses.total(), value)
    assert float(gradient) == 7
    assert not losses.detach().total().requires_grad


def test_detections_are_made_of_tensors_and_counted() -> None:
    detections = Detections.of(
        boxes=torch.zeros(3, 4), scores=torch.ones(3), labels=torch.zeros(3, dtype=torch.int64)
    )
    assert len(detections) == 3
