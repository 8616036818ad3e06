"""Networks that are no detectors, GANs with their two phases too, learn the same under any strategy."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boxcrew.core.config import Tree
from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies import fsdp
from boxcrew.deploy.strategies.ddp import Ddp
from boxcrew.deploy.strategies.parameter_server.server import Server
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.tasks.base import TASKS, Task, learning_in
from boxcrew.tasks.data import DataFacts
from boxcrew.tasks.gan import _with_noise
from boxcrew.train.loop.optim import OptimConfig, PhaseConfig, optimizer_of
from tests.helpers import learning
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes, in_processes

BATCH, STEPS, LATENT = 8, 4, 5
PICTURES: DataFacts = {
    "classes": ["a", "b", "c"],
    "counts": [5, 3, 1],
    "kind": "pictures",
    "shape": [28, 28, 1],
    "meaning": {},
    "mean": [0.4],
    "std": [0.3],
}
TEXT: DataFacts = {
    "classes": [],
    "counts": [],
    "kind": "tokens",
    "shape": [9],
    "meaning": {"alphabet": "abcdef", "unknown": 0},
}
GAN: Tree = {"width": 4, "latent": LATENT, "critic_steps": 2}
KINDS: dict[str, tuple[str, Tree, DataFacts]] = {
    "fc": ("classification", {"net": {"name": "fc", "widths": [16]}, "l1": 1e-3, "max_norm": 1.0}, PICTURES),
    "cnn": ("classification", {"net": {"name": "cnn", "width": 4}, "class_weights": True}, PICTURES),
    "rows": ("sequence", {"net": {"hidden": 8}}, PICTURES),
    "text": ("sequence", {"net": {"hidden": 8, "cells": "gru"}, "l1": 1e-3}, TEXT),
    "hinge": ("gan", {**GAN, "loss": "hinge"}, PICTURES),
    "penalised": ("gan", {**GAN, "loss": "wasserstein", "penalty": 10.0, "spectral_norm": False}, PICTURES),
}
SPARSE = ("fc", "text")  # have an L1 norm in their loss
OPTIM = OptimConfig(name="adam", rate=1e-3, weight_decay=0.0)
RATES = OPTIM.model_copy(update={"phases": {"critic": PhaseConfig(rate=3e-3, momentum=0.5)}})


def make_task(kind: str) -> Task:
    name, settings, facts = KINDS[kind]
    task_data = TASKS.get(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return task_data.build(task_data.config_class.of({"name": name, **settings}), facts).train()


def make_batch(kind: str, step: int) -> Batch:
    draw = torch.Generator().manual_seed(step)
    if KINDS[kind][2] is TEXT:
        inputs = torch.randint(0, 7, (BATCH, 9), generator=draw)
    else:
        inputs = torch.randint(0, 256, (BATCH, 1, 28, 28), dtype=torch.uint8, generator=draw)
    places = np.arange(BATCH)
    noise = _with_noise(seed=0, epochs=np.full(BATCH, step), indices=places, latent=LATENT)
    targets = {"labels": torch.randint(0, 3, (BATCH,), generator=draw)}
    targets |= {name: torch.from_numpy(value) for name, value in noise.items()}
    return Batch(inputs=inputs, targets=targets, keys=tuple(map(str, places)))


def learn(kind: str, deployment: Deployment, task: Task) -> Any:
    """What is learnt, and the losses of all phases."""
    placed = deployment.place(task)
    assert isinstance(placed, Task)
    optimizer = optimizer_of(placed, RATES if KINDS[kind][0] == "gan" else OPTIM)
    told = []
    for step in range(STEPS):
        batch = make_batch(kind, step).select(deployment.positions)
        for phase in placed.phases_of(step):
            with learning_in(placed, phase):
                losses = deployment.gradients(placed, batch, phase)
                deployment.update(optimizer, max_norm=None)
            told += [float(value / losses.weight) for value in losses.terms.values()]
    return dict(deployment.gather_full_state(placed.state_dict())), told


def plan(strategy: str, *shares: int, servers: int = 0, in_one: bool = False) -> Plan:
    clones = tuple(Clone(device="cpu", share=share) for share in shares)
    replicas = (Replica(clones=clones),) if in_one else tuple(Replica(clones=(one,)) for one in clones)
    return plan_of(*shares, strategy=strategy, replicas=replicas, batch_norm="synced", servers=servers)


def play_all(one: Plan, group: ReplicaGroup, file: Path) -> None:
    found = {}
    for kind in KINDS:
        task = make_task(kind)
        if group.is_server:
            Server(one, group, task, optimizer_of(task, RATES if KINDS[kind][0] == "gan" else OPTIM)).run()
            continue
        with deploy(one, group=group) as deployment:
            found[kind] = learn(kind, deployment, task)
    torch.save(found, file)


@cache
def alone(kind: str) -> Any:
    with deploy(plan("single", BATCH)) as deployment:
        return learn(kind, deployment, make_task(kind))


def require_same(kind: str, found: Any) -> None:
    state, told = found
    wanted, said = alone(kind)
    assert told == pytest.approx(said, rel=1e-3, abs=1e-5)
    assert learning.distance(state, wanted) < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_clones(kind: str) -> None:
    with deploy(plan("clones", 5, 3, in_one=True)) as deployment:
        require_same(kind, learn(kind, deployment, make_task(kind)))


@pytest.mark.parametrize(("strategy", "servers"), [("ddp", 0), ("fsdp", 0), ("parameter_server", 1)])
def test_replicas(strategy: str, servers: int, tmp_path: Path) -> None:
    one = plan(strategy, 5, 3, servers=servers)
    first, *_ = in_all_processes(one, partial(play_all, one), tmp_path)
    for kind in KINDS:
        require_same(kind, first[kind])


def test_what_is_known_of_weights_follows_them_once_a_phase_in_however_many_parts() -> None:
    """And stays where a step is taken back: replicas without a sample do that alone."""
    found = []
    for accumulation in (1, 4):
        task = make_task("hinge")
        with torch.no_grad():
            for parameter in task.parameters():
                parameter.add_(0.1 * torch.ones_like(parameter).cumsum(0))
        before = [buffer.clone() for name, buffer in task.named_buffers() if name.endswith(("_u", "_v"))]
        one = plan_of(BATCH, accumulation=accumulation)
        with deploy(one) as deployment, learning_in(task, "critic"):
            deployment.gradients(task, make_batch("hinge", 0), "critic")
            deployment.discard(task)
        found.append([buffer for name, buffer in task.named_buffers() if name.endswith(("_u", "_v"))])
    assert len(before) == 6
    assert not any(map(torch.equal, found[0][:4], before[:4])), "of the head there is one output only"
    assert all(map(torch.equal, *found))


def test_messages_are_packed_once_for_each_phase() -> None:
    task = make_task("hinge")
    with deploy(plan("ddp", BATCH)) as deployment:
        assert isinstance(deployment, Ddp)
        learn("hinge", deployment, task)
        packed = dict(deployment.reductions)
        learn("hinge", deployment, task)
        assert packed.keys() == {"critic", "generator"}
        assert all(deployment.reductions[phase] is packed[phase] for phase in packed)


def slopes(kind: str, deployment: Deployment) -> dict[str, torch.Tensor]:
    task = deployment.place(make_task(kind))
    deployment.gradients(task, make_batch(kind, 0).select(deployment.positions), "train")
    found = {name: parameter.grad for name, parameter in task.named_parameters()}
    return dict(
        deployment.gather_full_state({name: slope for name, slope in found.items() if slope is not None})
    )


def divided_slopes(deployment: Deployment, file: Path) -> None:
    """With every layer as a unit of its own."""
    fsdp.UNIT_BYTES = 1
    torch.save({kind: slopes(kind, deployment) for kind in SPARSE}, file)


def test_weights_that_are_divided_are_kept_as_small_by_whoever_has_them(tmp_path: Path) -> None:
    found, *_ = in_processes(plan("fsdp", 5, 3), divided_slopes, tmp_path)
    for kind in SPARSE:
        with deploy(plan("single", BATCH)) as deployment:
            wanted = slopes(kind, deployment)
        assert found[kind].keys() == wanted.keys()
        for name, slope in wanted.items():
            torch.testing.assert_close(found[kind][name], slope, rtol=1e-3, atol=1e-5)


def test_a_gan_learns_in_turns() -> None:
    """The generator every second step, by the rates of their phases; a critic that is frozen teaches none."""
    task = make_task("hinge")
    assert [task.phases_of(step) for step in range(4)] == [("critic",), ("critic", "generator")] * 2
    optimizer = optimizer_of(task, RATES)
    scales = {group["rate_scale"] for group in optimizer.param_groups}
    assert scales == {1.0, 3.0}
    before = {name: value.clone() for name, value in task.named_parameters()}
    with deploy(plan("single", BATCH)) as deployment, learning_in(task, "critic"):
        deployment.gradients(task, make_batch("hinge", 0), "critic")
        deployment.update(optimizer, max_norm=None)
    moved = {name for name, value in task.named_parameters() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith("net.critic.") for name in moved)
    assert all(parameter.requires_grad for parameter in task.parameters())
