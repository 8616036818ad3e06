"""Several processes as one run: the whole command, with kills, signals and wrong words.

Most processes are forked (tests/helpers/forked.py); where it matters how they begin, Python starts them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from boxcrew.core.config import to_yaml
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from tests.helpers.forked import UNDRAWN, Forked, Job, boxcrew
from tests.helpers.processes import free_port
from tests.helpers.tiny import BACKBONE, replaced

WORDS = (
    f"detector.backbone={BACKBONE}",
    "size=64",
    "batch=4",
    "init=scratch",
    "trainable=*",
    "optim=momentum",
    "optim.rate=0.001",  # in float32 larger steps soon tell any two ways of adding apart
    "loader.workers=0",
    "deploy.batch_norm=synced",
    "deploy.threads=1",
    "summaries.tensorboard=false",
    "summaries.images=0",
    "evaluation.every_epochs=1000",
    "schedule=fixed",  # the same for runs of any length
    "schedule.warmup=0",
    "saver.every_steps=2",
    "deploy.restarts=0",  # what goes on after a loss is in test_elastic.py
)
Start = Callable[..., Forked]
SOON = 20  # seconds, also on a busy machine: by the death of a process, not by how long it is not heard of


@pytest.fixture
def start(photos: Path, home: Path, tmp_path: Path) -> Iterator[Start]:
    """`start("steps=4", RANK="0")`: `boxcrew train` in a session of its own, so that signals to all of its
    processes reach no other; `first` is run before anything else in each.
    """
    begun: list[Forked] = []

    def begin(*words: str, first: str = "", **environment: str) -> Forked:
        command = ("train", f"data={photos}", "out=run", *replaced(WORDS, words))
        process = boxcrew(*command, first=first, cwd=tmp_path, HOME=str(home), **environment)
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_step(run: Path, step: int, process: Forked) -> None:
    """Until a checkpoint of that step is there."""
    place = run / "checkpoints" / f"{step:08d}" / "COMMIT"
    end = time.monotonic() + 60
    while not place.is_file():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def replicas_of(process: Forked) -> list[psutil.Process]:
    """In the order in which the launcher starts them, the chief first."""
    return sorted(psutil.Process(process.pid).children(), key=lambda child: (child.create_time(), child.pid))


def still_alive(processes: list[psutil.Process], *, after: float) -> list[psutil.Process]:
    """Of these, when so many seconds have passed, or before if all have ended."""
    return psutil.wait_procs(processes, timeout=after)[1]


def listening(processes: list[psutil.Process]) -> set[str]:
    """Return the addresses on which other processes can reach these."""
    connections = [each for process in processes for each in process.net_connections(kind="inet")]
    return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}


def require_failed(run: Path, reason: str) -> None:
    """Assert that the files of a run tell why it ended, and that it is not locked."""
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("failed", reason)
    if (run / "summary.json").exists():
        summary = json.loads((run / "summary.json").read_text())
        assert (summary["state"], summary["stopped_because"]) == ("failed", reason)
    assert not (run / "lock").exists()


TWO = {
    "ddp": ("deploy.strategy=ddp", "deploy.replicas=2"),
    "fsdp": ("deploy.strategy=fsdp", "deploy.replicas=2"),
    "parameter_server": ("deploy.strategy=parameter_server", "deploy.replicas=2", "deploy.servers=1"),
}


def test_a_killed_server_is_named_and_takes_all_with_it(start: Start, tmp_path: Path) -> None:
    process = start("steps=100000", *TWO["parameter_server"])
    wait_for_step(tmp_path / "run", 2, process)
    processes = replicas_of(process)
    assert len(processes) == 3
    assert listening([psutil.Process(process.pid), *processes]) == {"127.0.0.1"}
    processes[2].kill()
    begun = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < SOON
    assert process.returncode == 1
    assert "ps_0 was killed by SIGKILL" in err
    require_failed(tmp_path / "run", "ps_0 was killed by SIGKILL")
    assert "Traceback" not in err
    assert still_alive(processes, after=1) == []


def test_a_killed_chief_is_named_and_takes_all_with_it(start: Start, tmp_path: Path) -> None:
    """Their loader's workers too."""
    process = start("steps=100000", *TWO["ddp"], "loader.workers=1", "--json")
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    assert len(replicas) == 2
    family = [*replicas, *(child for replica in replicas for child in replica.children(recursive=True))]
    replicas[0].kill()
    begun = time.monotonic()
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < SOON
    assert process.returncode == 1
    assert "replica 0 was killed by SIGKILL" in err
    require_failed(tmp_path / "run", "replica 0 was killed by SIGKILL")
    document = json.loads(out)
    assert (document["error"], document["exit"]) == ("replica 0 was killed by SIGKILL", 1)
    assert still_alive(family, after=5) == []


def test_a_replica_that_fails_shows_its_traceback(start: Start, tmp_path: Path) -> None:
    """In one place, and soon. It fails here when it gets a signal."""
    program = """
import os, signal
def fail(*_):
    raise RuntimeError("no more paper")
if os.environ.get("RANK") == "1":
    signal.signal(signal.SIGUSR1, fail)
"""
    process = start("steps=100000", *TWO["ddp"], first=program)
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    replicas[1].send_signal(signal.SIGUSR1)
    begun = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < SOON
    assert process.returncode == 1
    assert "replica 1: Traceback (most recent call last)" in err
    assert "replica 1 failed: RuntimeError('no more paper')" in err
    assert still_alive(replicas, after=1) == []


def test_one_that_hangs_is_named_and_ended(start: Start, tmp_path: Path) -> None:
    """It takes three seconds here, by default half a minute (tests/deploy/processes/test_heartbeat.py). The
    others depend on the chief the most.
    """
    rank = 0
    program = (
        "from boxcrew.deploy.processes import heartbeat\nheartbeat.INTERVAL, heartbeat.SILENCE = 0.5, 3.0\n"
    )
    process = start("steps=100000", *TWO["ddp"], first=program)
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    replicas[rank].suspend()
    begun = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begun < 12
    assert process.returncode == 1
    assert f"replica {rank} is lost: no heartbeat for" in err
    assert still_alive(replicas, after=1) == []


def test_a_killed_parent_takes_its_children_along(start: Start, tmp_path: Path) -> None:
    process = start("steps=100000", "deploy.replicas=2")
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    process.kill()
    assert still_alive(replicas, after=5) == []


AGENT = """
import os
from boxcrew.cli.main import main
if (worker := os.fork()):
    os.waitpid(worker, 0)
else:
    main()
"""


def test_a_killed_agent_of_torchrun_takes_its_worker_along(photos: Path, home: Path, tmp_path: Path) -> None:
    """It would go on writing, while others are started in its place."""
    words = ("boxcrew", "train", f"data={photos}", "out=run", *replaced(WORDS, ["steps=9999", "trial=false"]))
    environment = {"HOME": str(home), "TORCHELASTIC_RUN_ID": "job"}
    agent = Forked(Job(code=AGENT, words=words, cwd=tmp_path, environment=environment))
    wait_for_step(tmp_path / "run", 2, agent)
    workers = psutil.Process(agent.pid).children()
    assert len(workers) == 1
    agent.kill()
    assert still_alive(workers, after=5) == []


def stop(process: Forked, number: signal.Signals, run: Path) -> dict[str, Any]:
    """Once it is at work, as a terminal does: all processes get the signal, and then what the launcher passes
    on. Gives the summary it has left.
    """
    wait_for_step(run, 2, process)
    replicas = replicas_of(process)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, (out, err)
    document = json.loads(out)
    assert (document["error"], document["exit"], document["run"]) == ("interrupted", 130, "run")
    assert still_alive(replicas, after=1) == []
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    assert summary["state"] == "interrupted"
    assert (run / "checkpoints" / f"{summary['steps']:08d}" / "COMMIT").is_file()
    assert f"ended after step {summary['steps']}: " in (run / "replica_1.log").read_text()
    return summary


def test_ctrl_c_stops_all_at_the_same_step(start: Start, tmp_path: Path) -> None:
    """Also replicas that are each at their own pace; servers wait for them."""
    words = (*TWO["parameter_server"], "deploy.staleness=2", "deploy.batch_norm=first")
    stopped = stop(start("steps=100000", *words, "--json"), signal.SIGINT, tmp_path / "run")
    assert stopped["steps"] >= 2
    assert "at most 2 steps ahead of each other" in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_is_told_to_leave_is_no_failure(start: Start, tmp_path: Path, rank: int) -> None:
    """As a scheduler does that takes one machine back: all save, and the run can go on without it."""
    process = start("steps=100000", *TWO["ddp"], "--json")
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    replicas[rank].terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 75, (out, err)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    reason = f"replica {rank} was preempted"
    assert (summary["state"], summary["stopped_because"]) == ("interrupted", reason)
    assert f"preempted: saved at step {summary['steps']}, no error" in err
    assert "error:" not in err
    document = json.loads(out)
    assert (document["error"], document["exit"], document["run"]) == ("preempted", 75, "run")
    saved = (tmp_path / "run" / "checkpoints" / f"{summary['steps']:08d}" / "COMMIT").stat().st_mtime_ns
    later = ("summary.json", "status.json", "weights/last.safetensors", "plots")
    assert saved < min((tmp_path / "run" / name).stat().st_mtime_ns for name in later), "it comes first"
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("interrupted", reason)
    assert not (tmp_path / "run" / "lock").exists()


def train_anew(
    launcher: str, *words: str, photos: Path, home: Path, place: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """`boxcrew train` in a Python that is started as users start it."""
    settings = (f"data={photos}", "out=run", *replaced(WORDS, words))
    return subprocess.run(
        [sys.executable, *launcher.split(), "-m", "boxcrew", "train", *settings],
        cwd=place,
        env={**os.environ, "HOME": str(home), "GOMP_SPINCOUNT": "0"},
        start_new_session=True,  # signals to all of its processes reach no other
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def test_a_mistake_that_only_the_chief_can_see_is_told_once(photos: Path, home: Path, tmp_path: Path) -> None:
    words = ("deploy.replicas=2", "trainable=nothing.*", "--json")
    done = train_anew("", *words, photos=photos, home=home, place=tmp_path, timeout=60)
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert (document["exit"], f"error: {document['error']}\n" in done.stderr) == (2, True)
    assert done.stderr.count("trainable") == 1
    assert "Traceback" not in done.stderr


def test_processes_that_torchrun_started_join(photos: Path, home: Path, tmp_path: Path) -> None:
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node=2"
    done = train_anew(torchrun, "steps=3", photos=photos, home=home, place=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("plan: ddp on cpu (2) + cpu (2)") == 1


def test_a_taken_port_is_told(start: Start) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = str(one.getsockname()[1])
        process = start("steps=3", RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"MASTER_PORT={port}" in err
    assert "Traceback" not in err


def _other_hosts_can_be_had() -> bool:
    """Processes with a host name of their own."""
    tried = subprocess.run(["unshare", "--uts", "hostname", "elsewhere"], capture_output=True, check=False)
    return tried.returncode == 0


OTHER_HOST = """
import ctypes, socket
assert ctypes.CDLL(None).unshare(0x04000000) == 0  # CLONE_NEWUTS
socket.sethostname("{name}")
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or not _other_hosts_can_be_had(),
    reason="no other host can be had here",
)
def test_replicas_and_a_server_on_several_hosts(
    config: Callable[..., RunConfig], photos: Path, home: Path, tmp_path: Path
) -> None:
    """Started by hand, with directories of their own: what the run goes on from the others are told, who have
    no files of it.
    """
    begun = config(photos, tmp_path / "host0" / "run", steps=2)
    train(begun, Screen())
    settings = tmp_path / "settings.yaml"
    settings.write_text(to_yaml(begun))
    words = ("train", str(settings), "out=run", "steps=4", "deploy.strategy=parameter_server")
    seats = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = []
    for rank in range(3):
        place = tmp_path / f"host{rank}"
        place.mkdir(exist_ok=True)
        first = OTHER_HOST.format(name=f"host{rank}") + UNDRAWN
        processes.append(boxcrew(*words, first=first, cwd=place, HOME=str(home), RANK=str(rank), **seats))
    outputs = ["\n".join(process.communicate(timeout=120)) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert "plan: 3 hosts: host0, host1, host2" in outputs[0]
    assert "continuing from this run's own checkpoint at step 2" in outputs[0]
    assert json.loads((tmp_path / "host0" / "run" / "summary.json").read_text())["steps"] == 4
    logs = {path.name for path in (tmp_path / "host0" / "run").glob("*.log")}
    assert logs == {"train.log", "replica_1.log", "ps_0.log"}
    assert not (tmp_path / "host1" / "run").exists()  # all that is written is where the chief says
