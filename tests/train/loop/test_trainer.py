"""The loop alone: what it does when, what it refuses, what it keeps."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.types import Batch, Losses
from boxcrew.tasks.base import Task
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer

MakeTrainer = Callable[..., Trainer]


class Dropping(Task):
    """Draws random numbers in every step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        outputs = self.body(batch.inputs)
        weight = torch.tensor(float(len(batch)))
        return Losses(terms={"class": outputs.square().sum(), "box": outputs.abs().sum()}, weight=weight)


class Diary(Hook):
    name = "diary"

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.reports: list[StepReport] = []
        self.kept = torch.zeros(1)

    def begin(self, trainer: Trainer) -> None:
        self.notes.append("begin")

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        self.notes.append(f"step {trainer.step}")
        self.reports.append(report)
        self.kept += report.loss

    def end(self, trainer: Trainer) -> None:
        self.notes.append("end")

    def state(self) -> dict[str, Any]:
        return {"notes": self.notes}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.notes = list(state["notes"])

    def tensors(self) -> dict[str, Tensor]:
        return {"kept/loss": self.kept}

    def load_tensors(self, trainer: Trainer, tensors: Mapping[str, Tensor]) -> None:
        self.kept = tensors["kept/loss"]


def batches(step: int) -> Iterator[Batch]:
    while True:
        noise = torch.Generator().manual_seed(step)
        yield Batch(
            inputs=torch.randn(6, 3, generator=noise), targets={}, keys=tuple("abcdef"), skipped=("x",)
        )
        step += 1


def test_hooks_are_told_of_everything_once(make_trainer: MakeTrainer) -> None:
    diary = Diary()
    trainer = make_trainer(Dropping(), [diary], steps=3)
    trainer.fit(batches)
    assert diary.notes == ["begin", "step 1", "step 2", "step 3", "end"]
    report = diary.reports[0]
    assert report.loss == pytest.approx(sum(report.terms.values()))
    assert report.terms.keys() == {"class", "box"}
    assert (report.num_samples, report.skipped, report.rate) == (6, ("x",), 0.1)
    assert [r.progress.step for r in diary.reports] == [1, 2, 3]
    assert [r.progress.epoch for r in diary.reports] == [0.5, 1, 1.5]
    assert trainer.elapsed >= sum(r.seconds for r in diary.reports)
    assert all(0 <= r.data_wait <= r.seconds for r in diary.reports)


def test_losses_are_told_by_their_weight_also_below_one(make_trainer: MakeTrainer) -> None:
    class Light(Dropping):
        def forward(self, batch: Batch, phase: str = "train") -> Losses:
            total = 0 * super().forward(batch, phase).total() + 3
            return Losses(terms={"class": total}, weight=torch.tensor(0.5))

    diary = Diary()
    make_trainer(Light(), [diary], steps=1).fit(batches)
    assert diary.reports[0].loss == 6


def test_what_hooks_take_is_time_of_training_but_for_the_last_step(make_trainer: MakeTrainer) -> None:
    class EvaluationHook(Diary):
        def after_step(self, trainer: Trainer, report: StepReport) -> None:
            super().after_step(trainer, report)
            time.sleep(0.2)

    hook = EvaluationHook()
    trainer = make_trainer(Dropping(), [hook], steps=2)
    trainer.fit(batches)
    slept = trainer.elapsed - sum(r.seconds for r in hook.reports)
    assert 0.2 <= slept < 0.4


def test_it_stops_after_the_step_at_hand(make_trainer: MakeTrainer) -> None:
    class Stopper(Hook):
        name = "stopper"

        def after_step(self, trainer: Trainer, report: StepReport) -> None:
            if trainer.step == 2:
                trainer.stop("enough")
                trainer.stop("a later reason")

    trainer = make_trainer(Dropping(), [Stopper()])
    trainer.fit(batches)
    assert (trainer.step, trainer.stop_reason, trainer.interrupted) == (2, "enough", False)


def test_time_ends_it(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(Dropping(), steps=10**9, seconds=0.2, rate=1e-4)
    trainer.fit(batches)
    assert 0.2 <= trainer.elapsed < 2
    assert trainer.step > 3


@pytest.mark.parametrize("split", [1, 4])
def test_resumed_is_the_same_as_never_stopped(make_trainer: MakeTrainer, split: int) -> None:
    diary = Diary()
    whole = make_trainer(Dropping(), [diary])
    whole.fit(batches)
    first = make_trainer(Dropping(), [Diary()], steps=split)
    first.fit(batches)
    saved = first.checkpoint()
    torch.manual_seed(99)
    other = Diary()
    second = make_trainer(Dropping(), [other])
    second.load(saved)
    assert (second.step, second.elapsed) == (first.step, first.elapsed)
    second.fit(batches)
    for name, value in whole.task.state_dict().items():
        assert torch.equal(value, second.task.state_dict()[name]), name
    assert torch.equal(other.kept, diary.kept)
    assert [r.loss for r in other.reports] == [r.loss for r in diary.reports[split:]]


def test_every_step_and_clone_and_phase_draws_other_numbers(make_trainer: MakeTrainer) -> None:
    seeds = set()
    for step, clone, is_first in itertools.product((0, 1), (0, 1), (True, False)):
        trainer = make_trainer(Dropping())
        trainer.step = step
        trainer._seed_phase("train", is_first=is_first)
        trainer.deployment.seed_clone(clone)
        seeds.add(torch.initial_seed())
    assert len(seeds) == 8


def test_batches_may_come_from_others_in_the_middle_of_a_run(make_trainer: MakeTrainer) -> None:
    """The result is the same, and the first iterator is closed."""
    plain = make_trainer(Dropping(), [], steps=5)
    plain.fit(batches)
    ended: list[int] = []

    def first(step: int) -> Iterator[Batch]:
        try:
            yield from batches(step)
        finally:
            ended.append(step)

    begun: list[int] = []

    def second(step: int) -> Iterator[Batch]:
        begun.append(step)
        return batches(step)

    class Changing(Hook):
        name = "changing"

        def after_step(self, trainer: Trainer, report: StepReport) -> None:
            if trainer.step == 2:
                trainer.replace_batches(second)

    changing = make_trainer(Dropping(), [Changing()], steps=5)
    changing.fit(first)
    assert (ended, begun, changing.step) == ([0], [2], 5)
    for own, other in zip(plain.task.parameters(), changing.task.parameters(), strict=True):
        assert torch.equal(own, other)


def test_reading_ends_with_the_steps(make_trainer: MakeTrainer) -> None:
    """Whoever reads may have processes, which would keep this one from ending."""
    ends: list[int] = []

    def read(step: int) -> Iterator[Batch]:
        try:
            yield from batches(step)
        finally:
            ends.append(step)

    trainer = make_trainer(Dropping(), [], steps=2)
    trainer.fit(read)
    assert ends == [0]
