"""The moving average of the weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from boxcrew.core.types import Batch, Losses
from boxcrew.tasks.base import Task
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.trainer import StepReport, Trainer

MakeTrainer = Callable[..., Trainer]


class Numbers(Task):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.norm = nn.BatchNorm1d(2)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        raise AssertionError


def report(owner: Trainer) -> StepReport:
    return StepReport(
        progress=owner.progress,
        loss=0.0,
        terms={},
        rate=0.0,
        gradient_norm=0.0,
        seconds=1.0,
        data_wait=0.0,
        num_samples=1,
        skipped=(),
    )


def move(make_trainer: MakeTrainer, task: Numbers, ema: Ema, values: list[float]) -> Trainer:
    """Steps that set the weight to these values, one after the other."""
    owner = make_trainer(task, [ema])
    for value in values:
        with torch.no_grad():
            task.weight.fill_(value)
            task.norm.running_mean.fill_(-value)  # type: ignore[union-attr]
            task.norm.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        ema.after_step(owner, report(owner))
    return owner


def test_follows_with_a_memory_that_grows_to_its_decay(make_trainer: MakeTrainer) -> None:
    task = Numbers()
    ema = Ema(task, decay=0.5)
    values = [1.0, -2.0, 3.0, 0.5, 8.0, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    owner = move(make_trainer, task, ema, values)
    expected = 0.0
    for i, value in enumerate(values, 1):
        decay = min(0.5, (1 + i) / (10 + i))
        expected = decay * expected + (1 - decay) * value
    average = ema.eval_copy(owner)
    assert isinstance(average, Numbers)
    torch.testing.assert_close(average.weight.detach(), torch.full((2,), expected))
    torch.testing.assert_close(average.norm.running_mean, torch.full((2,), -expected))
    assert average.norm.num_batches_tracked == len(values)
    assert not average.weight.requires_grad
    assert torch.equal(task.weight, torch.full((2,), 4.0)), "the trained one is not touched"


def test_of_a_constant_is_the_constant(make_trainer: MakeTrainer) -> None:
    task = Numbers()
    with torch.no_grad():
        task.weight.fill_(0.3)
    ema = Ema(task, decay=0.999)
    owner = move(make_trainer, task, ema, [0.3] * 50)
    torch.testing.assert_close(ema.eval_copy(owner).get_parameter("weight"), task.weight)


def test_without_decay_it_is_the_trained_one(make_trainer: MakeTrainer) -> None:
    task = Numbers()
    ema = Ema(task, decay=0.0)
    owner = move(make_trainer, task, ema, [1.0])
    assert ema.eval_copy(owner) is task
    assert ema.tensors() == {}
    ema.load_tensors(owner, {})


@pytest.mark.parametrize("split", [0, 1, 3])
def test_state_and_tensors_are_all_of_it(make_trainer: MakeTrainer, split: int) -> None:
    values = [1.0, -2.0, 3.0, 0.5]
    task = Numbers()
    whole = Ema(task, decay=0.9)
    move(make_trainer, task, whole, values)
    other = Numbers()
    first = Ema(other, decay=0.9)
    move(make_trainer, other, first, values[:split])
    second = Ema(other, decay=0.9)
    second.load_state(first.state())
    second.load_tensors(make_trainer(other), {name: value.clone() for name, value in first.tensors().items()})
    move(make_trainer, other, second, values[split:])
    assert torch.equal(second.tensors()["weight"], whole.tensors()["weight"])


def test_begun_in_a_resumed_run_it_starts_from_the_trained_weights(make_trainer: MakeTrainer) -> None:
    task = Numbers()
    ema = Ema(task, decay=0.9)
    with torch.no_grad():
        task.weight.fill_(5.0)  # what loading a checkpoint does
    ema.load_state({})
    ema.load_tensors(make_trainer(task), {})
    assert torch.equal(ema.tensors()["weight"], task.weight)
