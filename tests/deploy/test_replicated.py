"""Every strategy of several processes learns what one clone does, and goes on from what another learnt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.slots import Slots
from boxcrew.plan.plan import Clone, Plan, Replica
from boxcrew.testing import learning
from boxcrew.testing.plans import plan_of
from boxcrew.testing.processes import in_processes

BATCH = 8
STRATEGIES = ("ddp", "fsdp")
WAYS = [((8,), 2), ((4, 4), 1), ((5, 3), 2), ((3, 3, 2), 1), ((2, 2, 2, 2), 2)]  # shares, and parts of a step
TOLERANCE = {"normed": 1e-6, "idle": 1e-6, "ssdlite": 1e-10}
STOP = 3  # the step after which a run is to go on elsewhere


def plan(strategy: str, *shares: int, accumulation: int = 1) -> Plan:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in shares)
    return plan_of(
        *shares, strategy=strategy, replicas=replicas, accumulation=accumulation, batch_norm="synced"
    )


def momentum(task: nn.Module) -> Optimizer:
    return torch.optim.SGD(task.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)


def saved(deployment: Deployment, task: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """As a checkpoint has it; empty on replicas that have not all of it."""
    slots = deployment.slots(optimizer)
    return {
        "task": {name: value.clone() for name, value in deployment.whole(task.state_dict()).items()},
        "slots": {name: value.clone() for name, value in deployment.whole(slots.tensors).items()},
        "plain": json.dumps(slots.plain),
    }


def load(deployment: Deployment, task: nn.Module, optimizer: Optimizer, begun: Mapping[str, Any]) -> None:
    for name, own in task.state_dict().items():
        deployment.take(own, begun["task"][name])
    deployment.load_slots(optimizer, Slots(begun["slots"], json.loads(begun["plain"])))


def go_on(deployment: Deployment, begun: Mapping[str, Any]) -> list[float]:
    """From where another stopped: its next losses."""
    task = deployment.place(learning.make_task("idle"))
    optimizer = momentum(task)
    load(deployment, task, optimizer, begun)
    losses, norms = learning.learn(deployment, task, optimizer=optimizer, steps=range(STOP, STOP + 2))
    return losses + norms


def begin(deployment: Deployment) -> tuple[dict[str, Any], list[float]]:
    """What is saved at the stop, and what would come after it."""
    task = deployment.place(_disturbed(learning.make_task("idle"), deployment.group.rank))
    optimizer = momentum(task)
    learning.learn(deployment, task, optimizer=optimizer, steps=range(STOP))
    stopped = saved(deployment, task, optimizer)
    losses, norms = learning.learn(deployment, task, optimizer=optimizer, steps=range(STOP, STOP + 2))
    return stopped, losses + norms


def learn_all(other: Path, deployment: Deployment, file: Path) -> None:
    """All tasks, in one set of processes: starting them is what takes long."""
    found: dict[str, Any] = {}
    for name in learning.TASKS:
        task = deployment.place(_disturbed(learning.make_task(name), deployment.group.rank))
        losses, norms = learning.learn(deployment, task)
        found[name] = (dict(deployment.whole(task.state_dict())), losses + norms)
    found["begun"] = begin(deployment)
    found["gone on"] = go_on(deployment, torch.load(other, weights_only=True))
    torch.save(found, file)


def _disturbed(task: nn.Module, rank: int) -> nn.Module:
    """Replicas begin with what the chief has, whatever they had."""
    if rank:
        for parameter in task.parameters():
            torch.nn.init.constant_(parameter, 0.5)
    return task


@cache
def learnt_alone(name: str, accumulation: int) -> tuple[dict[str, Tensor], list[float]]:
    with deploy(plan_of(BATCH, accumulation=accumulation)) as deployment:
        task = deployment.place(learning.make_task(name))
        losses, norms = learning.learn(deployment, task)
    return task.state_dict(), losses + norms


@pytest.mark.parametrize(("shares", "accumulation"), WAYS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_number_of_replicas_with_any_shares_learn_the_same(
    strategy: str, shares: tuple[int, ...], accumulation: int, tmp_path: Path
) -> None:
    with deploy(plan_of(BATCH, accumulation=accumulation)) as deployment:
        stopped, after = begin(deployment)
        torch.save(stopped, tmp_path / "alone.pt")
        one = plan(strategy, *shares, accumulation=accumulation)
        found = in_processes(one, partial(learn_all, tmp_path / "alone.pt"), tmp_path)
        assert go_on(deployment, found[0]["begun"][0]) == pytest.approx(after, rel=1e-5)
    for name in learning.TASKS:
        wanted, numbers = learnt_alone(name, accumulation)
        first = found[0][name][0]
        for state, told in (replica[name] for replica in found):
            assert told == pytest.approx(numbers, rel=1e-5)
            if state:
                assert learning.distance(state, wanted) <= TOLERANCE[name], name
                _require_equal_parameters(state, first)
    for replica in found:
        assert replica["begun"][1] == pytest.approx(after, rel=1e-5)
        assert replica["gone on"] == pytest.approx(after, rel=1e-5)


def _require_equal_parameters(state: dict[str, Tensor], first: dict[str, Tensor]) -> None:
    """To the last bit: nobody would bring replicas together again."""
    assert state.keys() == first.keys()
    for name, value in first.items():
        assert torch.equal(state[name], value), name
