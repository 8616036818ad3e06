"""Recipes whose clones are dealt to one, two, three or four replicas, also to others after a stop in the
middle of an epoch: what they learn is equal, bit for bit.

Four processes form one group of replicas after the other, and train all recipes in each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import multiprocessing as processes

from boxcrew.core.config import Tree
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.processes.collectives import DistributedGroup, ReplicaGroup
from boxcrew.deploy.processes.environments import ProcessEnvironment
from boxcrew.recipes import RECIPES
from boxcrew.tasks.data import TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint, list_checkpoints, read_checkpoint, write_checkpoint
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import open_task
from boxcrew.train.run.setup import RunSetup
from tests.helpers import forked  # noqa: F401 - says what processes have imported when they begin
from tests.helpers.plans import plan_of
from tests.helpers.processes import free_port
from tests.helpers.tiny import BACKBONE

SHARES = (2, 2, 2, 2)
BATCH = sum(SHARES)
SMALL: Tree = {"size": 64, "init": "scratch", "trainable": "*"}
VARIANTS: dict[str, tuple[str, Tree]] = {
    "ssdlite": ("ssdlite", {**SMALL, "detector": {"backbone": BACKBONE}}),
    "mosaics": ("picodet", {**SMALL, "transforms": {"mosaic": 0.5, "mixup": 0.5}}),
    "yolo": ("yolo", SMALL),
    "regions": ("faster_rcnn_mobile", SMALL),
    "dropout": ("fc", {}),
    "rows": ("rnn", {"task": {"net": {"dropout": 0.3, "hidden": 16}}}),
    "two phases": ("gan", {"task": {"width": 4, "critic_steps": 2}}),
}
"""Recipes, and settings that make them small."""

Stops = tuple[tuple[int, int], ...]
WAYS: dict[str, Stops] = {
    "alone": ((1, 4),),
    "four": ((4, 4),),
    "changing": ((2, 1), (1, 2), (3, 3), (2, 4)),
}
"""Numbers of replicas, each with the step until which they train."""


@dataclass(frozen=True)
class Until(Hook):
    """Ends a run after a step, and notes its numbers."""

    name = "until"

    step: int
    numbers: list[float] = field(default_factory=list)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        values = (report.loss, report.gradient_norm, report.num_samples, *report.terms.values())
        self.numbers.extend(values)
        if trainer.step == self.step:
            trainer.stop("here")

    def state(self) -> dict[str, Any]:
        return {"numbers": self.numbers}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.numbers.extend(state["numbers"])


@contextmanager
def group_of(num: int, rank: int, port: int) -> Iterator[ReplicaGroup]:
    if num == 1:
        yield ReplicaGroup()
        return
    group = DistributedGroup(ProcessEnvironment(rank=rank, world_size=num, port=port))
    yield group
    group.close()


def train(config: RunConfig, data: TaskData, until: int, group: ReplicaGroup, folder: Path) -> None:
    plan = plan_of(*SHARES, strategy="ddp").with_replicas(group.num_replicas)
    torch.manual_seed(config.seed)
    setup = RunSetup.of(config, plan, data, task=data.task(), folder=folder, screen=Screen())
    saved = list_checkpoints(folder)
    with deploy(plan, group=group) as deployment:
        deployment.setup_module(setup.task)
        hooks = (Ema(setup.task, decay=0.9), Until(until))
        checkpoint = read_checkpoint(saved[-1]) if saved else None
        trainer = setup.trainer(deployment, hooks, lambda _: None, checkpoint)
        workers = setup.workers(plan, 0)
        trainer.fit(setup.loader(deployment, data, workers, mixed_steps=None).batches)
        deployment.barrier()  # all have read what is there
        if group.is_chief:
            write_checkpoint(folder, trainer.checkpoint())
        deployment.barrier()


def train_all(rank: int, photos: Path, ports: list[int], folder: Path) -> None:
    torch.set_num_threads(1)
    opened = {variant: open_task(settings(variant, photos), Screen())[:2] for variant in VARIANTS}
    for way, stops in WAYS.items():
        for num, until in stops:
            port = ports.pop()
            if rank >= num:
                continue
            with group_of(num, rank, port) as group:
                for variant, (config, data) in opened.items():
                    train(config, data, until, group, folder / way / variant)


def settings(variant: str, photos: Path) -> RunConfig:
    name, small = VARIANTS[variant]
    own: Tree = {"data": str(photos)} if "size" in small else {}
    return RECIPES.get(name)().changed({**own, **small, "batch": BATCH, "steps": 8})


def learned(folder: Path) -> tuple[str, Any, Any]:
    checkpoint: Checkpoint = read_checkpoint(list_checkpoints(folder)[-1])
    sums = hashlib.sha256()
    for name, tensor in sorted(checkpoint.tensors.items()):
        sums.update(name.encode() + tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sums.hexdigest(), checkpoint.state["guard"], checkpoint.state["hooks"]


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    ports = [free_port() for stops in WAYS.values() for _ in stops]
    processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        train_all, args=(photos, ports, folder), nprocs=4, start_method="forkserver"
    )
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_number_of_replicas_and_any_change_of_it_learns_the_same(variant: str, trained: Path) -> None:
    alone, *others = (learned(trained / way / variant) for way in WAYS)
    for other in others:
        assert other == alone
