"""Any number of replicas learns the same, bit for bit, if the clones are the same; in real processes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Never

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from boxcrew.core.types import Batch, Losses
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.detectors.ssdlite import SsdLite, SsdLiteConfig
from boxcrew.nets.spectral_norm import SpectralNorm
from boxcrew.plan.plan import BatchNorm, Plan
from boxcrew.tasks.base import Task, freeze_other_phases
from boxcrew.tasks.detection import DetectionTask
from tests.deploy import test_other_tasks as others
from tests.helpers import learning
from tests.helpers.dealt import dealt
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes
from tests.helpers.tiny import BACKBONE

SHARES = (3, 2, 2, 1)
STEPS = 3
Digests = dict[str, str]


class Dropping(learning.IdleTask):
    """Draws random numbers between its BatchNorms, and leaves some layers to few samples."""

    def __init__(self) -> None:
        super().__init__()
        self.features.insert(2, nn.Dropout(0.3))


class Detection(DetectionTask):
    def __init__(self) -> None:
        super().__init__(SsdLite(SsdLiteConfig(size=learning.SIZE, backbone=BACKBONE), ("cup", "pot")))


PLAIN: dict[str, type[nn.Module]] = {"dropping": Dropping, "ssdlite": Detection}
KINDS = ("fc", "cnn", "rows", "text", "hinge", "penalized")


def make_plan(replicas: int, *, batch_norm: BatchNorm = "first", **settings: Any) -> Plan:
    plan = plan_of(*SHARES, strategy="ddp", batch_norm=batch_norm, **settings)
    return plan.with_replicas(replicas)


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sum of all bytes, signs of zeros included."""
    sums = hashlib.sha256()
    for name in sorted(tensors):
        sums.update(name.encode())
        sums.update(tensors[name].detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sums.hexdigest()


def make_task(name: str) -> nn.Module:
    if name in KINDS:
        return others.make_task(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return PLAIN[name]().train()


def make_batch(name: str, step: int) -> Batch:
    return others.make_batch(name, step) if name in KINDS else learning.make_batch(sum(SHARES), step=step)


def learn(name: str, deployment: Deployment) -> str:
    """Return a digest of what is learned, and of all losses and norms on the way. The last step is done by
    every replica alone: each has all that it needs.
    """
    task = deployment.setup_module(make_task(name))
    optimizer = torch.optim.Adam(task.parameters(), lr=1e-3)
    numbers: list[Tensor] = []
    for step in range(STEPS + 1):
        if step == STEPS:
            deployment.regroup(ReplicaGroup())
        batch = dealt(make_batch(name, step), deployment)
        for phase in task.phases_of(step) if isinstance(task, Task) else ("train",):
            deployment.seed_step(f"7 {step} {phase}")
            losses, norm = descend(deployment, task, optimizer, batch, phase)
            numbers += [*losses.terms.values(), losses.weight, torch.tensor(norm)]
    slots = deployment.slots(optimizer).tensors
    return digest({**task.state_dict(), **slots, **{f"{i:03}": number for i, number in enumerate(numbers)}})


def descend(
    deployment: Deployment, task: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, phase: str
) -> tuple[Losses, float]:
    if not isinstance(task, Task):
        losses = deployment.gradients(task, batch, phase)
        return losses, deployment.update(optimizer, max_norm=1.0)
    with freeze_other_phases(task, phase):
        losses = deployment.gradients(task, batch, phase)
        return losses, deployment.update(optimizer, max_norm=1.0)


def learn_all(plan: Plan, group: ReplicaGroup, file: Path) -> None:
    digests: Digests = {}
    for name in (*PLAIN, *KINDS):
        for accumulation in (1, 2) if name in PLAIN else (1,):
            cut = plan.model_copy(update={"accumulation": accumulation})
            with deploy(cut, group=group) as deployment:
                digests[f"{name} in {accumulation}"] = learn(name, deployment)
    torch.save(digests, file)


def learned_by(plan: Plan, folder: Path) -> list[Digests]:
    folder.mkdir()
    return in_all_processes(plan, partial(learn_all, plan), folder)


def test_one_to_four_replicas_learn_the_same_bits(tmp_path: Path) -> None:
    learn_all(make_plan(1), ReplicaGroup(), tmp_path / "alone.pt")
    alone: Digests = torch.load(tmp_path / "alone.pt", weights_only=True)
    for num in (2, 3, 4):
        for digests in learned_by(make_plan(num), tmp_path / f"{num}"):
            assert digests == alone, f"{num} replicas"


class Tracked(Dropping):
    """Has a weight of which something is tracked besides."""

    def __init__(self) -> None:
        super().__init__()
        register_parametrization(self.classes, "weight", SpectralNorm(self.classes.weight))
        self.left = 0  # forwards until it fails, if not below zero

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        self.left -= 1
        if self.left == 0:
            raise LostError
        return super().forward(batch, phase)


class LostError(Exception):
    """Stands for a peer that is gone."""


def _lose(*_: object) -> Never:
    raise LostError


@pytest.mark.parametrize("where", ["forward", "backward", "sums"])
def test_a_step_that_was_abandoned_is_done_again_with_the_same_bits(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = (learn_tracked(each, monkeypatch) for each in (None, where))
    assert whole == broken


def learn_tracked(where: str | None, patch: pytest.MonkeyPatch) -> str:
    """Do two steps, of which the second fails once: in its third clone, or when all are computed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        task = Tracked().train()
    with deploy(make_plan(1)) as deployment:
        deployment.setup_module(task)
        optimizer = torch.optim.Adam(task.parameters(), lr=1e-3)
        for step in range(2):
            batch = dealt(learning.make_batch(sum(SHARES), step=step), deployment)
            deployment.seed_step(f"7 {step}")
            if step == 1 and where is not None:
                before = digest(task.state_dict())
                with patch.context() as patched:
                    if where == "forward":
                        task.left = 3
                    elif where == "backward":
                        patched.setattr(deployment, "backward", _lose)
                    else:
                        patched.setattr(deployment.group, "all_reduce", _lose)
                    with pytest.raises(LostError):
                        deployment.gradients(task, batch, "train")
                assert digest(task.state_dict()) != before
                deployment.abandon(task)
                assert digest(task.state_dict()) == before
                deployment.seed_step(f"7 {step}")
            deployment.gradients(task, batch, "train")
            deployment.update(optimizer, max_norm=None)
        return digest({**task.state_dict(), **deployment.slots(optimizer).tensors})
