"""A toy whose training has stages: a small classifier, a ridge head for it, and perhaps more descent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
import torch

from boxcrew.core.stage import Stage
from boxcrew.data.loading.example_samples import eval_example_batches
from boxcrew.recipes import RECIPES
from boxcrew.tasks.base import TASKS, Task
from boxcrew.tasks.classification import ClassificationConfig, ClassificationData
from boxcrew.tasks.data import SolveOptions
from boxcrew.tasks.net_configs import CnnConfig
from boxcrew.train.config import RunConfig

NAME = "ridge_toy"
RIDGE = 10.0


class RidgeToyConfig(ClassificationConfig):
    name: Literal["ridge_toy"] = "ridge_toy"  # type: ignore[assignment]
    tuned: bool = False  # whether a third stage trains the head on
    whole: bool = False  # whether all steps are for the first stage

    def stages(self) -> tuple[Stage, ...]:
        tune = Stage(
            name="tune", fraction=0.5, changes={"optim": {"rate": 0.001}, "trainable": ["net.body.head*"]}
        )
        first = Stage(name="backbone", fraction=1.0 if self.whole else 0.5)
        stages = (first, Stage(name="ridge", kind="solve"))
        return (*stages, tune) if self.tuned else stages


class RidgeToyData(ClassificationData):
    config_class = RidgeToyConfig

    def solve(self, task: Task, stage: str, options: SolveOptions) -> tuple[str, ...]:
        """The head becomes the ridge regression from features to one-hot classes (+1 and -1)."""
        assert stage == "ridge"
        assert not task.training
        num = len(self.examples.classes)
        features, targets = [], []
        for batch in eval_example_batches(self.train, batch=options.batch, workers=options.workers):
            features.append(task.network.features(batch.inputs).double())  # type: ignore[operator]
            targets.append(2.0 * torch.nn.functional.one_hot(batch.targets["labels"], num).double() - 1)
        x = torch.nn.functional.pad(torch.cat(features), (0, 1), value=1.0)
        penalty = RIDGE * torch.eye(x.shape[1], dtype=torch.float64)
        solved = torch.linalg.solve(x.T @ x + penalty, x.T @ torch.cat(targets))
        head = task.network.get_submodule("body.head")
        assert isinstance(head, torch.nn.Linear)
        head.weight.copy_(solved[:-1].T)
        head.bias.copy_(solved[-1])
        return ()


def ridge_toy() -> RunConfig:
    """A classifier with a ridge head: 12 steps, of which half are for the first stage"""
    return RunConfig.of(
        {
            "task": RidgeToyConfig(net=CnnConfig(width=4)),
            "steps": 12,
            "batch": 4,
            "loader": {"workers": 0},
            "deploy": {"threads": 1},
            "optim": {"name": "momentum", "rate": 0.05},
            "saver": {"every_steps": 2, "every_epochs": 100},
            "summaries": {"every_steps": 3, "tensorboard": False, "images": 0},
        }
    )


@contextmanager
def registered() -> Iterator[None]:
    """The toy is a task and a recipe while the context is open."""
    TASKS.names(), RECIPES.names()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS._members, NAME, RidgeToyData)
        patch.setitem(RECIPES._members, NAME, ridge_toy)
        yield


_TRAIN = """
import os, signal
from boxcrew.api import run_config
from boxcrew.train.loop.trainer import Trainer
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import stages, train
from tests.helpers import {helper} as toy

def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

def die_at_call(owner, name, number):
    original, calls = getattr(owner, name), []
    def call(*args, **options):
        calls.append(name)
        return die() if len(calls) == number else original(*args, **options)
    setattr(owner, name, call)

{fault}
with toy.registered():
    train(run_config(toy.NAME, given["settings"]), Screen())
"""


def training_with(fault: str, *, helper: str = "staged") -> str:
    """Return the code of a process that trains the toy of a helper module, with `given["settings"]`, and is
    killed by a line such as `die_at_call(Trainer, "_update", 4)`.
    """
    return _TRAIN.format(fault=fault, helper=helper)
