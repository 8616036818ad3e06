"""Replicas are lost, come and leave while a run trains on: it learns what one process learns, bit for bit.

The whole command, with real kills. Each test says in its name what happens.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.forked import UNDRAWN, Forked, boxcrew
from tests.helpers.once import MakeOnce
from tests.helpers.processes import free_port
from tests.helpers.runs import newest_tensors, require_equal, rows_without_times
from tests.helpers.tiny import BACKBONE, replaced

WORDS = (
    f"detector.backbone={BACKBONE}",
    "size=64",
    "batch=4",
    "init=scratch",
    "trainable=*",
    "steps=24",
    "loader.workers=0",
    "deploy.threads=1",
    "deploy.strategy=ddp",
    "deploy.replicas=3",
    "deploy.logical_clones=4",
    "deploy.restarts=9",
    "summaries.tensorboard=false",
    "summaries.images=0",
    "summaries.every_steps=1",
    "evaluation.every_epochs=1000",
    "saver.every_steps=2",
    "optim.ema=0.9",
)
SLOWLY = """
import time
from boxcrew.train.loop.hooks.progress import ProgressReport
after_step = ProgressReport.after_step
def slowly(*given):
    time.sleep({pause})
    after_step(*given)
ProgressReport.after_step = slowly
"""
"""Steps of the chief take long enough for a test to act in the middle of a run."""
PATIENCE = 300  # seconds for anything to end, also on a busy machine
Start = Callable[..., Forked]


@pytest.fixture
def start(photos: Path, home: Path, tmp_path: Path) -> Iterator[Start]:
    """`start("steps=4")`: `boxcrew train`, or another command, in a session of its own; `first` is run before
    anything else in each of its processes.
    """
    begun: list[Forked] = []

    def begin(*words: str, command: str = "train", first: str = "", pause: float = 0.15) -> Forked:
        if command == "train":
            words = (f"data={photos}", *replaced(("out=run", *WORDS), words))
        process = boxcrew(
            command, *words, first=UNDRAWN + SLOWLY.format(pause=pause) + first, cwd=tmp_path, HOME=str(home)
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="session")
def alone(photos: Path, home: Path, make_once: MakeOnce) -> Path:
    """The same run in one process, never interrupted."""

    def train(folder: Path) -> None:
        words = replaced(WORDS, ("deploy.replicas=1",))
        process = boxcrew(
            "train", f"data={photos}", "out=run", *words, first=UNDRAWN, cwd=folder, HOME=str(home)
        )
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err

    return make_once("alone", train) / "run"


def step_of(run: Path) -> int:
    """The last step with a line in the metrics."""
    file = run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0


def wait_for_step(run: Path, step: int, process: Forked) -> None:
    wait_until(lambda: step_of(run) >= step, process)


def wait_until(condition: Callable[[], bool], process: Forked) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def replicas_of(process: Forked) -> list[psutil.Process]:
    """In the order in which the launcher has started them, the chief first."""
    return sorted(psutil.Process(process.pid).children(), key=lambda child: (child.create_time(), child.pid))


def require_whole(process: Forked, run: Path, alone: Path) -> str:
    """Assert that the run ended as if nothing had happened, with each step once; return what it printed."""
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert [row["step"] for row in rows_without_times(run) if "rate" in row] == list(range(1, 25))
    assert rows_without_times(run) == rows_without_times(alone)
    require_equal(newest_tensors(run), newest_tensors(alone))
    assert json.loads((run / "summary.json").read_text())["state"] == "finished"
    assert not (run / "lock").exists()
    return err


def num_starts(run: Path) -> int:
    """How often the chief has begun."""
    return len(re.findall(r"training: \d+ steps", (run / "train.log").read_text()))


def test_worker_kill9(start: Start, alone: Path, tmp_path: Path) -> None:
    """-> the others go on in their processes, no step is lost or done twice, and another joins them."""
    process, run = start(), tmp_path / "run"
    wait_for_step(run, 5, process)
    replicas_of(process)[1].kill()
    err = require_whole(process, run, alone)
    assert "replica 1 was killed by SIGKILL: 2 replicas go on, and another is started in its place" in err
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
    assert (
        "replica 0 was killed by SIGKILL: all replicas are started again, from the newest checkpoint" in err
    )
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
    assert "replica 1 was killed by SIGKILL: all replicas are started again" in err
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
    assert "replica 2 leaves; 2 replicas go on" in (run / "train.log").read_text()


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
    assert "replica 2 was killed by SIGKILL: 1 replica go on" in err
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


def test_kill_of_the_one_that_joins(start: Start, alone: Path, tmp_path: Path) -> None:
    """In the place of a lost one another was started, and is killed when it is about to meet the others
    -> the others go on, and a third one joins.
    """
    program = """
import os, signal
from boxcrew.deploy.processes.elastic_group import ElasticGroup
meet = ElasticGroup._meet_members
def die(group, generation):
    if group.member == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    meet(group, generation)
ElasticGroup._meet_members = die
"""
    process, run = start(first=program, pause=0.5), tmp_path / "run"
    wait_for_step(run, 3, process)
    replicas_of(process)[1].kill()
    err = require_whole(process, run, alone)
    assert "replica 3 was killed by SIGKILL: 2 replicas go on, and another is started in its place" in err
    assert "replica 4 joins; 3 replicas go on" in (run / "train.log").read_text()
    assert num_starts(run) == 1


def test_join_and_flap(start: Start, alone: Path, tmp_path: Path) -> None:
    """From one replica to three and back, started by hand, one of them killed."""
    address = f"127.0.0.1:{free_port()}"
    words = ("deploy.replicas=1:4", f"deploy.listen={address}")
    process, run = start(*words, pause=1.0), tmp_path / "run"
    wait_for_step(run, 3, process)

    def log() -> str:
        return (run / "train.log").read_text()

    joined = [start(address, command="join") for _ in range(2)]
    wait_until(
        lambda: {"replica 1 joins", "replica 2 joins"} <= set(re.findall(r"replica \d joins", log())), process
    )
    wait_for_step(run, step_of(run) + 2, process)
    joined[0].kill()
    wait_until(lambda: "is lost: no heartbeat for" in log(), process)
    os.kill(joined[1].pid, signal.SIGTERM)
    assert joined[1].wait(timeout=PATIENCE) == 75
    require_whole(process, run, alone)
    assert num_starts(run) == 1


def test_join_is_refused(start: Start, tmp_path: Path, photos: Path) -> None:
    """With other settings, other data, or without room -> by name, and the run goes on."""
    address = f"127.0.0.1:{free_port()}"
    words = ("deploy.replicas=1:2", "deploy.logical_clones=2", f"deploy.listen={address}", "steps=10000")
    process, run = start(*words), tmp_path / "run"
    wait_for_step(run, 3, process)
    other = start(address, "seed=3", command="join")
    assert "seed=3: the run has 0" in other.communicate(timeout=PATIENCE)[1]
    shutil.copytree(photos, tmp_path / "less")
    for file in sorted((tmp_path / "less").rglob("train.txt")):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    less = start(address, f"data={tmp_path / 'less'}", command="join")
    assert "is not the data that the chief has" in less.communicate(timeout=PATIENCE)[1]
    old = start(address, command="join", first="import boxcrew.train.run.replicas as r\nr.VERSION = '0.0'\n")
    assert "; here is boxcrew 0.0, torch" in old.communicate(timeout=PATIENCE)[1]
    first = start(address, command="join")
    wait_until(lambda: " joins; 2 replicas" in (run / "train.log").read_text(), process)
    second = start(address, command="join")
    assert "no room: 2 replicas of at most 2" in second.communicate(timeout=PATIENCE)[1]
    codes = [refused.returncode for refused in (other, less, old, second)]
    assert codes == [2, 3, 2, 2]
    process.kill()
    assert first.wait(timeout=PATIENCE) != 0
    nobody = start(address, command="join")
    assert "no run can be reached there" in nobody.communicate(timeout=PATIENCE)[1]


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
    assert "replica 1 leaves; 2 replicas go on" in (run / "train.log").read_text()
