"""A trainer around any task, as small as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from boxcrew.deploy.deployment import deploy
from boxcrew.plan.plan import Precision
from boxcrew.tasks.base import Task
from boxcrew.train.loop.checkpoint import Checkpoint
from boxcrew.train.loop.guard import Guard, GuardConfig
from boxcrew.train.loop.optim import OptimConfig, build_optimizer
from boxcrew.train.loop.schedule import RunLimits, ScheduleConfig, TrainingSchedule
from boxcrew.train.loop.trainer import Hook, Trainer
from tests.helpers.plans import plan_of

MakeTrainer = Callable[..., Trainer]


def _nowhere(text: str) -> None: ...


def _none(before: int | None) -> Checkpoint | None:
    return None


@pytest.fixture
def make_trainer() -> MakeTrainer:
    """`(task, hooks, steps=10, seconds=None, rate=0.1, steps_per_epoch=2.0, guard=None, precision="fp32")`;
    the rate is fixed.
    """

    def make(
        task: Task,
        hooks: Sequence[Hook] = (),
        *,
        steps: int = 10,
        seconds: float | None = None,
        rate: float = 0.1,
        steps_per_epoch: float = 2.0,
        guard: Guard | None = None,
        precision: Precision = "fp32",
    ) -> Trainer:
        plan = plan_of(
            6,
            precision=precision,
            threads=torch.get_num_threads(),
        )
        optim = OptimConfig(rate=rate)
        return Trainer(
            task=task,
            deployment=deploy(plan),
            optimizer=build_optimizer(task, optim, backbones=("body.",)),
            schedule=TrainingSchedule(
                limits=RunLimits(steps=steps, seconds=seconds, steps_per_epoch=steps_per_epoch),
                config=ScheduleConfig(name="fixed", warmup=0),
                peak_rate=rate,
                clip=None,
                seed=0,
            ),
            hooks=hooks,
            guard=guard or Guard(GuardConfig(), warn=_nowhere, last_good=_none),
        )

    return make
