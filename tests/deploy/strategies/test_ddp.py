"""Replicas exchange gradients and values, in real processes over gloo."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import multiprocessing as processes
from torch import nn

from boxcrew.core.errors import BoxcrewError
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.processes import heartbeat, rendezvous
from boxcrew.deploy.processes.collectives import DistributedGroup
from boxcrew.deploy.processes.environments import ProcessEnvironment
from boxcrew.deploy.strategies import _gradient_buckets
from boxcrew.deploy.strategies.ddp import Ddp
from boxcrew.plan.plan import BatchNorm, Clone, Plan, Replica
from tests.helpers import learning
from tests.helpers.plans import plan_of
from tests.helpers.processes import free_port, in_processes, run_replica

BATCH = 8


def make_plan(*shares: int, accumulation: int = 1, batch_norm: BatchNorm = "synced") -> Plan:
    replicas = tuple(Replica(clones=(Clone(device="cpu", share=share),)) for share in shares)
    return plan_of(
        *shares, strategy="ddp", replicas=replicas, accumulation=accumulation, batch_norm=batch_norm
    )


def sparse(deployment: Deployment, file: Path) -> None:
    """A replica has a sample in one of four micro-batches only, and layers thaw."""
    assert isinstance(deployment, Ddp)
    task = deployment.setup_module(learning.make_task("idle"))
    task.eval()  # without statistics of micro-batches
    results = []
    for thawed in (False, True):
        task.get_submodule("features").requires_grad_(thawed)
        batch = learning.make_batch(BATCH, step=0)
        losses = deployment.gradients(task, batch.select(deployment.positions), "train")
        gradients = {name: p.grad for name, p in task.named_parameters() if p.grad is not None}
        results.append((float(losses.total() / losses.weight), {n: g.clone() for n, g in gradients.items()}))
        learns = [p for p in task.parameters() if p.requires_grad]
        assert deployment.reducers["train"].sent_bytes == sum(p.numel() * p.element_size() for p in learns)
        deployment.discard(task)
    torch.save(results, file)


def test_replicas_without_a_sample_and_layers_that_thaw(tmp_path: Path) -> None:
    """Every gradient is sent once, and what no replica uses has none."""
    plan = make_plan(7, 1, accumulation=4, batch_norm="first")
    assert sorted(len(piece) for piece in plan.replica_ranges(1)) == [0, 0, 0, 1]
    results = in_processes(plan, sparse, tmp_path)
    task = learning.make_task("idle").eval()
    for i, thawed in enumerate((False, True)):
        task.get_submodule("features").requires_grad_(thawed)
        task.zero_grad()
        losses = task(learning.make_batch(BATCH, step=0))
        (losses.total() / losses.weight).backward()
        loss_alone = float(losses.detach().total() / losses.weight)
        wanted = {name: p.grad for name, p in task.named_parameters() if p.grad is not None}
        for loss, gradients in (replica[i] for replica in results):
            assert loss == pytest.approx(loss_alone, rel=1e-6)
            assert gradients.keys() == wanted.keys()
            for name, value in wanted.items():
                torch.testing.assert_close(gradients[name], value, rtol=1e-4, atol=1e-6)


class Rare(learning.IdleTask):
    """A task without BatchNorms; `rare` is used by crowded samples only."""

    def __init__(self) -> None:
        super().__init__()
        self.features[1], self.features[4] = nn.Identity(), nn.Identity()


def overlap(deployment: Deployment, file: Path) -> None:
    """Each parameter has its own bucket: some are sent during backward, and not the same number on both."""
    assert isinstance(deployment, Ddp)
    torch.manual_seed(0)
    task = deployment.setup_module(Rare())
    task.get_submodule("idle").requires_grad_(requires_grad=False)  # it would hold all others up
    losses, norms = learning.learn(deployment, task)
    torch.save((task.state_dict(), losses + norms, deployment.reducers["train"].num_early), file)


def _with_small_buckets(deployment: Deployment, file: Path) -> None:
    vars(_gradient_buckets)["BUCKET_BYTES"] = 1
    overlap(deployment, file)


def test_gradients_leave_while_backward_still_runs(tmp_path: Path) -> None:
    """Replicas that use different parameters still send all messages in one order."""
    results = in_processes(make_plan(4, 4, batch_norm="first"), _with_small_buckets, tmp_path)
    torch.manual_seed(0)
    with deploy(plan_of(BATCH)) as deployment:
        alone = deployment.setup_module(Rare())
        losses, norms = learning.learn(deployment, alone)
    for state, numbers, num_early in results:
        assert numbers == pytest.approx(losses + norms, rel=1e-5)
        assert learning.distance(state, alone.state_dict()) < 1e-6
        assert 0 <= num_early < len(list(alone.parameters()))
    assert max(num_early for _, _, num_early in results) > 0


def fail(deployment: Deployment, file: Path) -> None:
    """The second replica fails; the first is waiting for it."""
    group = deployment.group
    if group.rank:
        group.report_failure("no more paper")
        os._exit(3)
    with pytest.raises(BoxcrewError) as caught:
        group.all_reduce(torch.zeros(1))
    torch.save(caught.value.message, file)
    os._exit(0)  # without a shutdown, for which it would wait


def test_a_replica_that_waits_for_a_failed_one_is_told_why(tmp_path: Path) -> None:
    running = processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        run_replica,
        args=(make_plan(4, 4), free_port(), fail, tmp_path),
        nprocs=2,
        start_method="forkserver",
        join=False,
    )
    running.processes[0].join(30)
    assert running.processes[0].exitcode == 0
    assert torch.load(tmp_path / "0.pt", weights_only=True) == "replica 1 failed: no more paper"


def broadcast(deployment: Deployment, file: Path) -> None:
    values: Sequence[Any] = [
        deployment.group.broadcast_json({"from": deployment.group.rank, "n": n}) for n in range(3)
    ]
    torch.save(values, file)


def test_all_replicas_get_the_chiefs_value(tmp_path: Path) -> None:
    results = in_processes(make_plan(4, 4), broadcast, tmp_path)
    assert results[0] == results[1] == [{"from": 0, "n": n} for n in range(3)]


def test_a_process_that_does_not_join_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "RENDEZVOUS", timedelta(seconds=0.5))
    with pytest.raises(BoxcrewError, match="replica 1, replica 2 did not join the 3 processes within"):
        DistributedGroup(ProcessEnvironment(rank=0, world_size=3, port=free_port()))


def hang(stopped: int, deployment: Deployment, file: Path) -> None:
    """One replica is stopped as by a debugger; the other goes on waiting for it."""
    deployment.group.all_reduce(torch.zeros(1))  # the other's heartbeat has begun
    if deployment.group.rank == stopped:
        os.kill(os.getpid(), signal.SIGSTOP)
    with file.with_suffix(".err").open("w") as stderr:
        sys.stderr = stderr
        deployment.group.all_reduce(torch.zeros(1))


def _hanging(rank: int, stopped: int, port: int, folder: Path) -> None:
    heartbeat.INTERVAL, heartbeat.SILENCE = 0.1, 1.0
    run_replica(rank, make_plan(4, 4), port, partial(hang, stopped), folder)


@pytest.mark.parametrize("stopped", [0, 1])
def test_one_that_hangs_is_found_and_named(tmp_path: Path, stopped: int) -> None:
    """It takes a second here, half a minute by default."""
    running = processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        _hanging, args=(stopped, free_port(), tmp_path), nprocs=2, start_method="forkserver", join=False
    )
    other = running.processes[1 - stopped]
    try:
        other.join(120)  # of which starting takes most, on a busy machine
        assert other.exitcode == 1
        stderr = (tmp_path / f"{1 - stopped}.err").read_text()
        assert f"replica {stopped} is lost: no heartbeat for" in stderr
    finally:
        for process in running.processes:
            process.kill()
