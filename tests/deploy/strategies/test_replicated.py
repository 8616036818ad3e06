"""Every strategy of several processes learns what one clone does, and goes on from what another learned."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.deploy.deployment import STRATEGIES, Deployment, deploy
from boxcrew.deploy.optimizer_state import OptimizerState
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies.parameter_server.server import ParameterServerProcess
from boxcrew.plan.plan import Clone, Plan, Replica
from tests.helpers import learning
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes

BATCH = 8
ALONE = ("single", "clones")  # strategies for one process
WAYS = [((8,), 2), ((5, 3), 2), ((3, 3, 2), 1)]  # shares, and micro-batches of a step
CASES = [
    (name, *way)
    for name in STRATEGIES.names()
    for way in WAYS
    if name not in ALONE and (len(way[0]) > 1 or name == "parameter_server")  # test_contract.py has the rest
]
TOLERANCE = {"normed": 1e-6, "idle": 1e-6, "ssdlite": 1e-10}
STOP = 3  # the step after which a run is to go on elsewhere


def make_plan(strategy: str, *shares: int, accumulation: int = 1, servers: int = 0) -> Plan:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in shares)
    return plan_of(
        *shares,
        strategy=strategy,
        replicas=replicas,
        accumulation=accumulation,
        batch_norm="synced",
        servers=servers,
    )


def descent(task: nn.Module) -> Optimizer:
    return torch.optim.SGD(task.parameters(), lr=0.05)


def momentum(task: nn.Module) -> Optimizer:
    return torch.optim.SGD(task.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)


def learn(deployment: Deployment, task: nn.Module, optimizer: Optimizer) -> Any:
    losses, norms = learning.learn(deployment, task, optimizer=optimizer)
    return dict(deployment.gather_full_state(task.state_dict())), losses + norms


def begin(deployment: Deployment, task: nn.Module, optimizer: Optimizer) -> Any:
    """Return what a checkpoint saves at the stop, and the losses and norms that come after it."""
    learning.learn(deployment, task, optimizer=optimizer, steps=range(STOP))
    stopped: dict[str, Any] = {"task": deployment.gather_full_state(task.state_dict())}
    if deployment.is_chief or not deployment.has_full_state:  # those that serve the chief's commands
        slots = deployment.slots(optimizer)
        stopped |= {"slots": deployment.gather_full_state(slots.tensors), "plain": json.dumps(slots.plain)}
    stopped = copy.deepcopy(stopped)
    losses, norms = learning.learn(deployment, task, optimizer=optimizer, steps=range(STOP, STOP + 2))
    return stopped, losses + norms


def go_on(saved: Path, deployment: Deployment, task: nn.Module, optimizer: Optimizer) -> Any:
    """Go on from where another stopped; return the next losses and norms."""
    begun = torch.load(saved, weights_only=True)
    for name, own in task.state_dict().items():
        deployment.load_into(own, begun["task"][name])
    deployment.load_optimizer_state(optimizer, OptimizerState(begun["slots"], json.loads(begun["plain"])))
    losses, norms = learning.learn(deployment, task, optimizer=optimizer, steps=range(STOP, STOP + 2))
    return losses + norms


Scene = tuple[str, Callable[[nn.Module], Optimizer], Callable[[Deployment, nn.Module, Optimizer], Any]]
"""A task's name, its optimizer, and what to do with them."""


def scenes(saved: Path) -> dict[str, Scene]:
    """All scenes play in one set of processes: starting them takes long."""
    learned: dict[str, Scene] = {name: (name, descent, learn) for name in learning.TASKS}
    return learned | {
        "begun": ("idle", momentum, begin),
        "gone on": ("idle", momentum, partial(go_on, saved)),
    }


def play(scene: Scene, plan: Plan, group: ReplicaGroup) -> Any:
    name, make_optimizer, act = scene
    task = _disturbed(learning.make_task(name), group.rank)
    if group.is_server:
        ParameterServerProcess(plan, group, task, make_optimizer(task)).run()
        return None
    with deploy(plan, group=group) as deployment:
        placed = deployment.setup_module(task)
        return act(deployment, placed, make_optimizer(placed))


def play_all(plan: Plan, saved: Path, group: ReplicaGroup, file: Path) -> None:
    torch.save({title: play(scene, plan, group) for title, scene in scenes(saved).items()}, file)


def _disturbed(task: nn.Module, rank: int) -> nn.Module:
    """Give replicas other values than the chief: all must begin with the chief's."""
    if rank:
        for parameter in task.parameters():
            torch.nn.init.constant_(parameter, 0.5)
    return task


@cache
def learned_alone(name: str, accumulation: int) -> tuple[dict[str, Tensor], list[float]]:
    with deploy(plan_of(BATCH, accumulation=accumulation)) as deployment:
        task = deployment.setup_module(learning.make_task(name))
        losses, norms = learning.learn(deployment, task)
    return task.state_dict(), losses + norms


@pytest.mark.parametrize(("strategy", "shares", "accumulation"), CASES)
def test_any_number_of_replicas_with_any_shares_learn_the_same(
    strategy: str, shares: tuple[int, ...], accumulation: int, tmp_path: Path
) -> None:
    servers = 2 if strategy == "parameter_server" else 0
    alone, plan = (
        plan_of(BATCH, accumulation=accumulation),
        make_plan(strategy, *shares, accumulation=accumulation, servers=servers),
    )
    stopped, after = play(scenes(tmp_path)["begun"], alone, ReplicaGroup())
    torch.save(stopped, tmp_path / "alone.pt")
    results = in_all_processes(plan, partial(play_all, plan, tmp_path / "alone.pt"), tmp_path)[: len(shares)]
    torch.save(results[0]["begun"][0], tmp_path / "several.pt")
    gone_on = play(scenes(tmp_path / "several.pt")["gone on"], alone, ReplicaGroup())
    assert gone_on == pytest.approx(after, rel=1e-5)
    for name in learning.TASKS:
        wanted, numbers = learned_alone(name, accumulation)
        first = results[0][name][0]
        for state, own_numbers in (replica[name] for replica in results):
            assert own_numbers == pytest.approx(numbers, rel=1e-5)
            if state:
                assert learning.distance(state, wanted) <= TOLERANCE[name], name
                _require_equal_parameters(state, first)
    for replica in results:
        assert replica["begun"][1] == pytest.approx(after, rel=1e-5)
        assert replica["gone on"] == pytest.approx(after, rel=1e-5)


def _require_equal_parameters(state: dict[str, Tensor], first: dict[str, Tensor]) -> None:
    """Replicas must be equal to the bit: nothing would bring them together again."""
    assert state.keys() == first.keys()
    for name, value in first.items():
        assert torch.equal(state[name], value), name
