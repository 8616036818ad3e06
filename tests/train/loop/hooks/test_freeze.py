"""Frozen parameters and BatchNorm statistics, and when they are unfrozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Losses
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import Task
from boxcrew.train.loop.hooks.freeze import Freeze, set_train_mode
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer

MakeTrainer = Callable[..., Trainer]


class Layers(Task):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4))
        self.head = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        outputs = self.head(self.body(batch.inputs))
        return Losses(terms={"class": (outputs - 1).square().sum()}, weight=torch.tensor(float(len(batch))))


class Watch(Hook):
    """The state after each step."""

    name = "watch"

    def __init__(self) -> None:
        self.states: list[dict[str, Tensor]] = []

    def begin(self, trainer: Trainer) -> None:
        self._keep(trainer)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        self._keep(trainer)

    def _keep(self, trainer: Trainer) -> None:
        self.states.append({name: value.clone() for name, value in trainer.task.state_dict().items()})

    def changed(self, step: int) -> set[str]:
        """Names of what the step (from 0) moved."""
        before, after = self.states[step], self.states[step + 1]
        return {name for name in before if not torch.equal(before[name], after[name])}


def batches(step: int) -> Iterator[Batch]:
    draw = torch.Generator().manual_seed(step)
    while True:
        yield Batch(inputs=torch.randn(6, 3, generator=draw), targets={}, keys=("a",) * 6)


Run = Callable[[tuple[str, ...], Mapping[float, tuple[str, ...]]], Watch]


@pytest.fixture
def run(make_trainer: MakeTrainer) -> Run:
    """Trains for four steps."""

    def train(trainable: tuple[str, ...], unfreeze: Mapping[float, tuple[str, ...]]) -> Watch:
        task, watch = Layers(), Watch()
        freeze = Freeze(task, trainable=trainable, unfreeze=unfreeze)
        make_trainer(task, [freeze, watch], steps=4).fit(batches)
        return watch

    return train


def test_all_learn_unless_told(run: Run) -> None:
    watch = run(("*",), {})
    assert watch.changed(0) == set(watch.states[0])


def test_only_the_trainable_learn_and_frozen_statistics_stand_still(run: Run) -> None:
    watch = run(("head.*",), {})
    for step in range(4):
        changed = watch.changed(step)
        assert changed == {name for name in watch.states[0] if name.startswith("head.")}
        assert "head.1.running_mean" in changed


def test_more_joins_at_its_share_of_the_run(run: Run) -> None:
    watch = run(("head.*",), {0.5: ("body.1.*",), 0.75: ("body.0.*",)})
    assert {name.split(".")[0] for name in watch.changed(1)} == {"head"}
    joined = watch.changed(2)
    assert {"body.1.weight", "body.1.running_mean"} <= joined
    assert "body.0.weight" not in joined
    assert watch.changed(3) == set(watch.states[0])


def test_a_run_that_goes_on_has_what_joined_before(make_trainer: MakeTrainer) -> None:
    task, watch = Layers(), Watch()
    freeze = Freeze(task, trainable=("head.*",), unfreeze={0.5: ("body.*",)})
    owner = make_trainer(task, [freeze, watch], steps=4)
    owner.step = 3
    owner.fit(batches)
    assert watch.changed(0) == set(watch.states[0])


def test_frozen_layers_build_no_graph(make_trainer: MakeTrainer) -> None:
    task = Layers()
    owner = make_trainer(task, [], steps=4)
    Freeze(task, trainable=("head.*",), unfreeze={}).begin(owner)
    assert not task.body(torch.ones(2, 3)).requires_grad


def test_evaluation_in_between_leaves_the_modes_as_they_were() -> None:
    task = Layers()
    task.body.requires_grad_(requires_grad=False)
    set_train_mode(task)
    modes = [module.training for module in task.modules()]
    assert not task.body[1].training
    assert task.head[1].training
    with eval_mode(task):
        assert not any(module.training for module in task.modules())
    assert [module.training for module in task.modules()] == modes


def test_norms_without_parameters_cannot_be_frozen() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3, affine=False))
    set_train_mode(net)
    assert net[0].training


def test_patterns_that_match_nothing_are_errors(run: Run) -> None:
    with pytest.raises(UsageError, match=r"trainable: 'heads\.\*'"):
        run(("heads.*",), {})
    with pytest.raises(UsageError, match="unfreeze: 'bod'"):
        run(("*",), {0.5: ("bod",)})
    with pytest.raises(UsageError, match="nothing would learn"):
        run((), {})


def test_something_learns_in_every_phase() -> None:
    class Turns(Layers):
        phases = ("body", "head")

        def learns_in(self, phase: str, name: str) -> bool:
            return name.startswith(phase)

    with pytest.raises(UsageError, match="nothing would learn in the phase 'head'"):
        Freeze(Turns(), trainable=("body.*",), unfreeze={0.5: ("head.*",)})
    Freeze(Turns(), trainable=("body.*", "head.0.*"), unfreeze={})


def test_all_norms_may_keep_their_statistics() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    set_train_mode(net, norms_learn=False)
    assert [module.training for module in net] == [True, False]
    set_train_mode(net)
    assert [module.training for module in net] == [True, True]
