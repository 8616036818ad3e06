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
from boxcrew.deploy.strategies.parameter_server.server import ParameterServerProcess
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.tasks.base import TASKS, Task, freeze_other_phases
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.gan import _with_noise
from boxcrew.train.loop.optim import OptimConfig, PhaseConfig, optimizer_of
from tests.helpers import learning
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes, in_processes

BATCH, STEPS, LATENT = 8, 4, 5
PICTURES = ExampleFacts(
    classes=("a", "b", "c"),
    counts=(5, 3, 1),
    kind="images",
    shape=(28, 28, 1),
    encoding={},
    mean=(0.4,),
    std=(0.3,),
)
TEXT = ExampleFacts(
    classes=(), counts=(), kind="tokens", shape=(9,), encoding={"alphabet": "abcdef", "unknown": 0}
)
GAN: Tree = {"width": 4, "latent": LATENT, "critic_steps": 2}
KINDS: dict[str, tuple[str, Tree, ExampleFacts]] = {
    "fc": ("classification", {"net": {"name": "fc", "widths": [16]}, "l1": 1e-3, "max_norm": 1.0}, PICTURES),
    "cnn": ("classification", {"net": {"name": "cnn", "width": 4}, "class_weights": True}, PICTURES),
    "rows": ("sequence", {"net": {"hidden": 8}}, PICTURES),
    "text": ("sequence", {"net": {"hidden": 8, "cells": "gru"}, "l1": 1e-3}, TEXT),
    "hinge": ("gan", {**GAN, "loss": "hinge"}, PICTURES),
    "penalized": ("gan", {**GAN, "loss": "wasserstein", "penalty": 10.0, "spectral_norm": False}, PICTURES),
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
    indices = np.arange(BATCH)
    noise = _with_noise(seed=0, epochs=np.full(BATCH, step), indices=indices, latent=LATENT)
    targets = {"labels": torch.randint(0, 3, (BATCH,), generator=draw)}
    targets |= {name: torch.from_numpy(value) for name, value in noise.items()}
    return Batch(inputs=inputs, targets=targets, keys=tuple(map(str, indices)))


def learn(kind: str, deployment: Deployment, task: Task) -> Any:
    """Return what is learned, and the losses of all phases."""
    placed = deployment.setup_module(task)
    assert isinstance(placed, Task)
    optimizer = optimizer_of(placed, RATES if KINDS[kind][0] == "gan" else OPTIM)
    values = []
    for step in range(STEPS):
        batch = make_batch(kind, step).select(deployment.positions)
        for phase in placed.phases_of(step):
            with freeze_other_phases(placed, phase):
                losses = deployment.gradients(placed, batch, phase)
                deployment.update(optimizer, max_norm=None)
            values += [float(value / losses.weight) for value in losses.terms.values()]
    return dict(deployment.gather_full_state(placed.state_dict())), values


def make_plan(strategy: str, *shares: int, servers: int = 0, in_one: bool = False) -> Plan:
    clones = tuple(Clone(device="cpu", share=share) for share in shares)
    replicas = (Replica(clones=clones),) if in_one else tuple(Replica(clones=(clone,)) for clone in clones)
    return plan_of(*shares, strategy=strategy, replicas=replicas, batch_norm="synced", servers=servers)


def play_all(plan: Plan, group: ReplicaGroup, file: Path) -> None:
    results = {}
    for kind in KINDS:
        task = make_task(kind)
        if group.is_server:
            ParameterServerProcess(
                plan, group, task, optimizer_of(task, RATES if KINDS[kind][0] == "gan" else OPTIM)
            ).run()
            continue
        with deploy(plan, group=group) as deployment:
            results[kind] = learn(kind, deployment, task)
    torch.save(results, file)


@cache
def alone(kind: str) -> Any:
    with deploy(make_plan("single", BATCH)) as deployment:
        return learn(kind, deployment, make_task(kind))


def require_same(kind: str, learned: Any) -> None:
    state, losses = learned
    wanted, wanted_losses = alone(kind)
    assert losses == pytest.approx(wanted_losses, rel=1e-3, abs=1e-5)
    assert learning.distance(state, wanted) < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_clones(kind: str) -> None:
    with deploy(make_plan("clones", 5, 3, in_one=True)) as deployment:
        require_same(kind, learn(kind, deployment, make_task(kind)))


@pytest.mark.parametrize(("strategy", "servers"), [("ddp", 0), ("fsdp", 0), ("parameter_server", 1)])
def test_replicas(strategy: str, servers: int, tmp_path: Path) -> None:
    plan = make_plan(strategy, 5, 3, servers=servers)
    first, *_ = in_all_processes(plan, partial(play_all, plan), tmp_path)
    for kind in KINDS:
        require_same(kind, first[kind])


def test_tracked_weights_are_updated_once_a_phase_in_however_many_parts() -> None:
    """It also stays when a step is discarded, which replicas without a sample do alone."""
    results = []
    for accumulation in (1, 4):
        task = make_task("hinge")
        with torch.no_grad():
            for parameter in task.parameters():
                parameter.add_(0.1 * torch.ones_like(parameter).cumsum(0))
        before = [buffer.clone() for name, buffer in task.named_buffers() if name.endswith(("_u", "_v"))]
        plan = plan_of(BATCH, accumulation=accumulation)
        with deploy(plan) as deployment, freeze_other_phases(task, "critic"):
            deployment.gradients(task, make_batch("hinge", 0), "critic")
            deployment.discard(task)
        results.append([buffer for name, buffer in task.named_buffers() if name.endswith(("_u", "_v"))])
    assert len(before) == 6
    assert not any(map(torch.equal, results[0][:4], before[:4])), "of the head there is one output only"
    assert all(map(torch.equal, *results))


def test_buckets_are_made_once_for_each_phase() -> None:
    task = make_task("hinge")
    with deploy(make_plan("ddp", BATCH)) as deployment:
        assert isinstance(deployment, Ddp)
        learn("hinge", deployment, task)
        packed = dict(deployment.reducers)
        learn("hinge", deployment, task)
        assert packed.keys() == {"critic", "generator"}
        assert all(deployment.reducers[phase] is packed[phase] for phase in packed)


def slopes(kind: str, deployment: Deployment) -> dict[str, torch.Tensor]:
    task = deployment.setup_module(make_task(kind))
    deployment.gradients(task, make_batch(kind, 0).select(deployment.positions), "train")
    gradients = {name: parameter.grad for name, parameter in task.named_parameters()}
    return dict(
        deployment.gather_full_state({name: slope for name, slope in gradients.items() if slope is not None})
    )


def sharded_slopes(deployment: Deployment, file: Path) -> None:
    """Every layer is a unit of its own."""
    fsdp.UNIT_BYTES = 1
    torch.save({kind: slopes(kind, deployment) for kind in SPARSE}, file)


def test_sharded_weights_are_regularized_the_same(tmp_path: Path) -> None:
    results, *_ = in_processes(make_plan("fsdp", 5, 3), sharded_slopes, tmp_path)
    for kind in SPARSE:
        with deploy(make_plan("single", BATCH)) as deployment:
            wanted = slopes(kind, deployment)
        assert results[kind].keys() == wanted.keys()
        for name, slope in wanted.items():
            torch.testing.assert_close(results[kind][name], slope, rtol=1e-3, atol=1e-5)


def test_a_gan_learns_in_turns() -> None:
    """The generator every second step, by the rates of their phases; a critic that is frozen teaches none."""
    task = make_task("hinge")
    assert [task.phases_of(step) for step in range(4)] == [("critic",), ("critic", "generator")] * 2
    optimizer = optimizer_of(task, RATES)
    scales = {group["rate_scale"] for group in optimizer.param_groups}
    assert scales == {1.0, 3.0}
    before = {name: value.clone() for name, value in task.named_parameters()}
    with deploy(make_plan("single", BATCH)) as deployment, freeze_other_phases(task, "critic"):
        deployment.gradients(task, make_batch("hinge", 0), "critic")
        deployment.update(optimizer, max_norm=None)
    moved = {name for name, value in task.named_parameters() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith("net.critic.") for name in moved)
    assert all(parameter.requires_grad for parameter in task.parameters())
