"""Replicas are lost, come and leave while a run trains on: it learns what one process learns, bit for bit.

The whole command, with real kills. Each test says in its name what happens.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.elastic import (
    PATIENCE,
    Start,
    num_starts,
    replicas_of,
    require_whole,
    step_of,
    wait_for_step,
    wait_until,
)
from tests.helpers.runs import newest_tensors, require_equal, rows_without_times


def test_worker_kill9(start: Start, alone: Path, tmp_path: Path) -> None:
    """-> the others go on in their processes, no step is lost or done twice, and another joins them."""
    process, run = start(), tmp_path / "run"
    wait_for_step(run, 5, process)
    replicas_of(process)[1].kill()
    err = require_whole(process, run, alone)
    assert "replica 1 was killed by SIGKILL: 2 replicas continue, and another starts in its place" in err
    assert num_starts(run) == 1


def test_two_kills(start: Start, alone: Path, tmp_path: Path) -> None:
    """One after another, the second as soon as the others have gone on -> the chief goes on."""
    process, run = start(), tmp_path / "run"
    wait_for_step(run, 5, process)
    _, first, second = replicas_of(process)
    first.kill()
    at = step_of(run)
    wait_for_step(run, at + 2, process)
    second.kill()
    require_whole(process, run, alone)
    assert num_starts(run) == 1


def test_two_kills_at_once(start: Start, alone: Path, tmp_path: Path) -> None:
    process, run = start(), tmp_path / "run"
    wait_for_step(run, 5, process)
    for replica in replicas_of(process)[1:]:
        replica.kill()
    require_whole(process, run, alone)
    assert num_starts(run) == 1


def test_rank0_kill9(start: Start, alone: Path, tmp_path: Path) -> None:
    """-> all are started again from the newest checkpoint."""
    process, run = start(), tmp_path / "run"
    wait_for_step(run, 5, process)
    replicas_of(process)[0].kill()
    err = require_whole(process, run, alone)
    assert "replica 0 was killed by SIGKILL: all replicas restart from the newest checkpoint" in err
    assert num_starts(run) == 2


def test_rank0_kill9_without_out(start: Start, alone: Path, tmp_path: Path) -> None:
    """-> it goes on in the directory in which it has begun."""
    process, run = start("out=none"), tmp_path / "runs" / "detect" / "train"
    wait_for_step(run, 5, process)
    replicas_of(process)[0].kill()
    require_whole(process, run, alone)
    assert num_starts(run) == 2
    assert [path.name for path in run.parent.iterdir()] == ["train"]


@pytest.mark.parametrize(
    "strategy", [("fsdp",), ("parameter_server", "deploy.servers=1"), ("ddp", "deploy.batch_norm=synced")]
)
def test_replicas_that_cannot_go_on_alone(start: Start, tmp_path: Path, strategy: tuple[str, ...]) -> None:
    """One is killed -> all are started again, and each step is done once."""
    name, *more = strategy
    words = (f"deploy.strategy={name}", "deploy.replicas=2", "deploy.logical_clones=auto", "steps=8", *more)
    process, run = start(*words), tmp_path / "run"
    wait_for_step(run, 3, process)
    replicas_of(process)[1].kill()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "replica 1 was killed by SIGKILL: all replicas restart from the newest checkpoint" in err
    assert [row["step"] for row in rows_without_times(run) if "rate" in row] == list(range(1, 9))
    assert num_starts(run) == 2


def test_leave_sigterm(start: Start, alone: Path, tmp_path: Path) -> None:
    """To one of several -> it ends after its step, and the others go on without it."""
    process, run = start(), tmp_path / "run"
    wait_for_step(run, 5, process)
    replica = replicas_of(process)[2]
    replica.terminate()
    psutil.wait_procs([replica], timeout=PATIENCE)
    assert not replica.is_running()
    require_whole(process, run, alone)
    assert num_starts(run) == 1
    assert "left after step" in (run / "replica_2.log").read_text()
    assert "replica 2 leaves; 2 replicas continue" in (run / "train.log").read_text()


def test_kill_during_reform(start: Start, alone: Path, tmp_path: Path) -> None:
    """One that is about to meet the others is killed -> the chief goes on alone until others join."""
    program = """
import os, signal
from boxcrew.deploy.processes.elastic_group import ElasticGroup
meet = ElasticGroup._meet_members
def die(group, generation):
    if group.member == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    meet(group, generation)
ElasticGroup._meet_members = die
"""
    process, run = start(first=program), tmp_path / "run"
    wait_for_step(run, 5, process)
    replicas_of(process)[1].kill()
    err = require_whole(process, run, alone)
    assert "replica 2 was killed by SIGKILL: 1 replica continue" in err
    assert num_starts(run) == 1


def test_kill_while_the_chief_evaluates(start: Start, tmp_path: Path, alone: Path) -> None:
    """-> its evaluation is not disturbed, and the others wait."""
    program = """
import time
from boxcrew.train.loop.hooks.evaluation import EvaluationHook
evaluate = EvaluationHook._evaluate
def slowly(hook, trainer, *, count):
    open("evaluating", "w").close()
    time.sleep(2)
    evaluate(hook, trainer, count=count)
EvaluationHook._evaluate = slowly
"""
    process, run = start("evaluation.every_epochs=8", first=program), tmp_path / "run"
    wait_until((tmp_path / "evaluating").exists, process)
    replicas_of(process)[1].kill()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    require_equal(newest_tensors(run), newest_tensors(alone))
    rows = rows_without_times(run)
    assert [row["step"] for row in rows if "rate" not in row] == [12, 24]
    assert num_starts(run) == 1


def test_kill_in_the_middle_of_the_update(start: Start, alone: Path, tmp_path: Path) -> None:
    """The chief has updated its parameters, another only has its gradients when a third is lost -> the other
    makes the update too.
    """
    program = """
import os, signal
from boxcrew.deploy.execution import PlanProcess
from boxcrew.deploy.processes.membership import ReplicaLostError
from boxcrew.train.loop.regrouping import Points
pass_next, agree = Points.pass_next, PlanProcess.all_reduce_status
def watched(points, status, work, undo=None):
    points.deployment.is_update = undo is not None and points.passed > 24
    return pass_next(points, status, work, undo or (lambda: None))
def cut_off(deployment, status):
    agreed, group = agree(deployment, status), deployment.group
    if deployment.is_update and group.num_replicas == 3 and not os.path.exists(f"cut_{group.member}"):
        open(f"cut_{group.member}", "w").close()
        if group.member == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if group.member == 1:
            raise group._broken()
    return agreed
Points.pass_next, PlanProcess.all_reduce_status = watched, cut_off
PlanProcess.is_update = False
"""
    process, run = start(first=program), tmp_path / "run"
    require_whole(process, run, alone)
    assert {path.name for path in tmp_path.glob("cut_*")} >= {"cut_0", "cut_1", "cut_2"}
    assert num_starts(run) == 1


def test_hang_stop(start: Start, alone: Path, tmp_path: Path) -> None:
    """One is stopped -> it is found by its silence, which takes three seconds here, and killed."""
    program = """
from boxcrew.deploy.processes import heartbeat
heartbeat.INTERVAL, heartbeat.SILENCE = 0.5, 3.0
"""
    process, run = start(first=program), tmp_path / "run"
    wait_for_step(run, 5, process)
    replicas_of(process)[1].suspend()
    err = require_whole(process, run, alone)
    assert "replica 1 is lost: no heartbeat for" in err
    assert num_starts(run) == 1


def test_restart_storm(start: Start, tmp_path: Path) -> None:
    """Every second replica is killed as soon as it trains -> the run ends soon, and says what came first."""
    process, run = start("deploy.restarts=2"), tmp_path / "run"
    for _ in range(3):
        at = step_of(run)
        wait_for_step(run, max(5, at + 2), process)
        replicas_of(process)[-1].kill()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    first = (
        "replica 2 was killed by SIGKILL; it was the first of 3 losses within 10 minutes (deploy.restarts=2)"
    )
    assert f"error: {first}" in err
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("failed", first)
    assert not (run / "lock").exists()


def test_an_error_of_its_own_ends_the_run(start: Start, tmp_path: Path) -> None:
    """-> no other attempt is made."""
    program = """
import signal
def fail(*_):
    raise RuntimeError("no more paper")
signal.signal(signal.SIGUSR1, fail)
"""
    process, run = start(first=program), tmp_path / "run"
    wait_for_step(run, 5, process)
    replicas_of(process)[1].send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "replica 1 failed: RuntimeError('no more paper')" in err
    assert json.loads((run / "status.json").read_text())["state"] == "failed"


def test_sigterm_to_all(start: Start, tmp_path: Path) -> None:
    """Within the notice of a machine that is taken away -> a whole checkpoint, before anything else."""
    process, run = start("steps=10000"), tmp_path / "run"
    wait_for_step(run, 5, process)
    replicas = replicas_of(process)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    summary = json.loads((run / "summary.json").read_text())
    assert summary["state"] == "interrupted"
    saved = (run / "checkpoints" / f"{summary['steps']:08d}" / "COMMIT").stat().st_mtime_ns
    assert saved < min(
        (run / name).stat().st_mtime_ns for name in ("summary.json", "weights/last.safetensors")
    )
    assert psutil.wait_procs(replicas, timeout=5)[1] == []


def test_double_sigterm(start: Start, alone: Path, tmp_path: Path) -> None:
    """To one replica, twice, as some schedulers do -> it leaves as after one."""
    process, run = start(), tmp_path / "run"
    wait_for_step(run, 5, process)
    replica = replicas_of(process)[1]
    replica.terminate()
    time.sleep(0.05)
    if replica.is_running():
        replica.terminate()
    require_whole(process, run, alone)
    assert "replica 1 leaves; 2 replicas continue" in (run / "train.log").read_text()
