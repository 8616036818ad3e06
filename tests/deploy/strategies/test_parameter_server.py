"""Parameter servers in real processes, over gloo."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.execution import RunStatus
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.strategies.parameter_server.server import ParameterServerProcess
from boxcrew.plan.plan import Clone, Plan, Replica
from tests.helpers import learning
from tests.helpers.plans import plan_of
from tests.helpers.processes import in_all_processes

RATE = 0.05
Work = Callable[[Deployment, nn.Module], Any]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def make_plan(
    *replicas: tuple[int, ...], servers: int, staleness: int | None = None, batch_norm: str = "first"
) -> Plan:
    """Each replica with clones of these shares."""
    made = tuple(
        Replica(clones=tuple(Clone(device="cpu", share=share) for share in shares)) for shares in replicas
    )
    return plan_of(
        *(share for shares in replicas for share in shares),
        strategy="parameter_server",
        replicas=made,
        servers=servers,
        staleness=staleness,
        batch_norm=batch_norm,
    )


def descent(task: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(task.parameters(), lr=RATE)


def _play(
    plan: Plan, name: str, work: Work, make_optimizer: MakeOptimizer, group: ReplicaGroup, file: Path
) -> None:
    """A replica saves its results, a server the most steps that one replica was ahead of another."""
    task = learning.make_task(name)
    if group.is_server:
        server = ParameterServerProcess(plan, group, task, make_optimizer(task))
        server.run()
        torch.save((server.num_kept, server.lead), file)
        return
    with deploy(plan, group=group) as deployment:
        torch.save(work(deployment, deployment.setup_module(task)), file)


def play(plan: Plan, work: Work, folder: Path, *, task: str = "normed") -> tuple[list[Any], list[Any]]:
    """Return the results of replicas and of servers."""
    results = in_all_processes(plan, partial(_play, plan, task, work, descent), folder)
    return results[: len(plan.replicas)], results[len(plan.replicas) :]


def learn(deployment: Deployment, task: nn.Module) -> Any:
    losses, norms = learning.learn(deployment, task, optimizer=descent(task))
    return task.state_dict(), losses + norms


def learn_alone(plan: Plan, *, task: str = "normed") -> tuple[dict[str, Tensor], list[float]]:
    with deploy(plan) as deployment:
        made = deployment.setup_module(learning.make_task(task))
        losses, norms = learning.learn(deployment, made, optimizer=descent(made))
    return made.state_dict(), losses + norms


def test_replicas_with_several_clones_each(tmp_path: Path) -> None:
    """The classic case: two replicas, two clones, two servers learn what one clone does, BatchNorms too."""
    replicas, servers = play(make_plan((3, 1), (2, 2), servers=2, batch_norm="synced"), learn, tmp_path)
    wanted, numbers = learn_alone(plan_of(8))
    for state, own_numbers in replicas:
        assert own_numbers == pytest.approx(numbers, rel=1e-5)
        assert learning.distance(state, wanted) < 1e-6
    total = len(list(learning.make_task("normed").parameters()))
    assert [kept for kept, _ in servers] == [-(-total // 2), total // 2]


def test_alone_at_its_own_pace_a_replica_learns_what_one_process_does(tmp_path: Path) -> None:
    replicas, _ = play(make_plan((8,), servers=2, staleness=0), learn, tmp_path)
    wanted, numbers = learn_alone(plan_of(8))
    assert replicas[0][1] == pytest.approx(numbers, rel=1e-6)
    assert learning.distance(replicas[0][0], wanted) < 1e-6


def at_own_pace(deployment: Deployment, task: nn.Module) -> Any:
    """The second replica is slow. Return what was sent in all, and what the servers have in the end."""
    optimizer, group = descent(task), deployment.group
    before = {name: value.detach().clone() for name, value in task.named_parameters()}
    sent = {name: torch.zeros_like(value) for name, value in before.items()}
    share = len(deployment.positions) / deployment.plan.batch
    for step in range(6):
        time.sleep(0.3 * group.rank)
        batch = learning.make_batch(deployment.plan.batch, step=step).select(deployment.positions)
        deployment.gradients(task, batch, "train")
        for name, parameter in task.named_parameters():
            sent[name] += share * parameter.grad if parameter.grad is not None else 0
        deployment.update(optimizer, max_norm=None)
    group.all_reduce(torch.zeros(1))  # until both have sent all
    deployment.update(optimizer, max_norm=None)
    after = {name: value.detach().clone() for name, value in task.named_parameters()}
    return before, sent, after


@pytest.mark.parametrize("staleness", [0, 2])
def test_each_at_its_own_pace_but_not_too_far_ahead(tmp_path: Path, staleness: int) -> None:
    """No gradient is lost or counted twice, whatever the order they come in."""
    plan = make_plan((5,), (3,), servers=2, staleness=staleness)
    replicas, servers = play(plan, at_own_pace, tmp_path)
    before, _, after = replicas[0]
    for name, value in after.items():
        moved = before[name] - RATE * sum(sent[name] for _, sent, _ in replicas)
        torch.testing.assert_close(value, moved, rtol=1e-5, atol=1e-7)
        assert torch.equal(value, replicas[1][2][name])
    # A step is counted when it is sent; a replica that is too far ahead gets no answer to it.
    assert [lead for _, lead in servers] == [staleness + 1] * 2


def stop_at_different_steps(deployment: Deployment, task: nn.Module) -> Any:
    """The slow one wants to stop after its second step; the other is ahead by then."""
    optimizer, rank = descent(task), deployment.group.rank
    for step in range(1, 100):
        time.sleep(0.2 * rank)
        deployment.gradients(task, learning.make_batch(8, step=0).select(deployment.positions), "train")
        deployment.update(optimizer, max_norm=None)
        status = RunStatus(elapsed=10.0 * step, stop=rank == 1 and step >= 2, interrupted=rank == 1)
        agreed = deployment.all_reduce_status(status)
        if agreed.stop:
            return step, agreed.interrupted, agreed.elapsed
    return None


def test_replicas_at_different_steps_stop_after_the_same(tmp_path: Path) -> None:
    plan = make_plan((4,), (4,), servers=2, staleness=3)
    ends, _ = play(plan, stop_at_different_steps, tmp_path)
    assert ends[0][:2] == ends[1][:2]
    steps, interrupted, elapsed = ends[0]
    assert 2 < steps <= 2 + 3 + 2
    assert interrupted
    assert elapsed == 10.0 * steps  # the chief's own clock, at the time


def leave_out(deployment: Deployment, task: nn.Module) -> Any:
    """The first replica leaves three steps out; the other may not be more than one ahead."""
    optimizer = descent(task)
    for step in range(6):
        deployment.gradients(task, learning.make_batch(8, step=step).select(deployment.positions), "train")
        if deployment.group.rank == 0 and step in {1, 2, 3}:
            deployment.discard(task)
        else:
            deployment.update(optimizer, max_norm=None)
    return sum(map(len, deployment.group.messages.unconfirmed.values()))


def test_a_step_that_is_left_out_counts_as_one(tmp_path: Path) -> None:
    """Else the others would wait for it forever. What was sent is forgotten once it has arrived."""
    kept, servers = play(make_plan((4,), (4,), servers=2, staleness=1), leave_out, tmp_path)
    assert [lead <= 2 for _, lead in servers] == [True, True]
    assert kept == [0, 0]


def adaptive(deployment: Deployment, task: nn.Module) -> Any:
    """Both replicas see the same samples, so that the gradient is the same however it is split."""
    before = torch.cat([p.detach().flatten() for p in task.parameters()])
    optimizer = adam(task)
    for _ in range(4):
        deployment.gradients(task, learning.make_batch(4, step=0), "train")
        deployment.update(optimizer, max_norm=None)
    deployment.finalize()
    return (torch.cat([p.detach().flatten() for p in task.parameters()]) - before).norm()


def adam(task: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(task.parameters(), lr=1e-3)


def test_at_ones_own_pace_adaptive_optimizers_go_as_far_as_together(
    tmp_path: Path,
) -> None:
    """They care little about the length of a gradient: the learning rate has to be divided."""
    distances = []
    for staleness in (None, 1):
        plan = make_plan((4,), (4,), servers=1, staleness=staleness)
        results = in_all_processes(plan, partial(_play, plan, "normed", adaptive, adam), tmp_path)
        distances.append(float(results[0]))
    assert distances[1] == pytest.approx(distances[0], rel=0.3)


def spoil(deployment: Deployment, task: nn.Module) -> Any:
    """The second replica's gradient is not finite in the second step; then a step is discarded."""
    optimizer, results = descent(task), []
    for step in range(4):
        batch = learning.make_batch(8, step=step).select(deployment.positions)
        deployment.gradients(task, batch, "train")
        if step == 1 and deployment.group.rank == 1:
            gradient = next(task.parameters()).grad
            assert gradient is not None
            gradient.view(-1)[0] = math.nan
        if step == 2:
            deployment.discard(task)
            continue
        norm = deployment.update(optimizer, max_norm=0.5)
        results.append((norm, next(task.parameters()).detach().clone()))
    return results


@pytest.mark.parametrize("staleness", [None, 4])
def test_what_is_not_finite_moves_nothing(tmp_path: Path, staleness: int | None) -> None:
    results, _ = play(make_plan((4,), (4,), servers=2, staleness=staleness), spoil, tmp_path)
    norms = [[norm for norm, _ in replica] for replica in results]
    assert [math.isfinite(norm) for norm in norms[1]] == [True, False, True]
    # Synchronously both must leave the step out; asynchronously only the one that has it.
    assert [math.isfinite(norm) for norm in norms[0]] == [True, staleness is not None, True]
    for replica in results:
        assert all(bool(value.isfinite().all()) for _, value in replica)
    if staleness is None:
        assert torch.equal(results[0][0][1], results[0][1][1])
        assert torch.equal(results[0][2][1], results[1][2][1])
