"""Several processes as one run: the whole command, with kills, signals and wrong words."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from boxcrew.testing.learning import distance
from boxcrew.testing.runs import newest_tensors

WORDS = (
    "detector.backbone=mobilenetv3_small_050",
    "size=64",
    "batch=4",
    "init=scratch",
    "trainable=*",
    "optim=momentum",
    "optim.rate=0.01",
    "loader.workers=0",
    "deploy.batch_norm=synced",
    "deploy.threads=1",
    "summaries.tensorboard=false",
    "summaries.images=0",
    "evaluation.every_epochs=1000",
    "saver.every_steps=2",
)
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(photos: Path, tmp_path: Path) -> Iterator[Start]:
    """`start("steps=4", RANK="0")`: `boxcrew train` in a session of its own, so that signals to all of its
    processes reach no other.
    """
    begun: list[subprocess.Popen[str]] = []

    def begin(*words: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "boxcrew", "train", f"data={photos}", "out=run", *WORDS, *words],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "GOMP_SPINCOUNT": "0", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def wait_for_step(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Until a checkpoint of that step is there."""
    place = run / "checkpoints" / f"{step:08d}" / "COMMIT"
    end = time.monotonic() + 60
    while not place.is_file():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def replicas_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The chief first."""
    children = psutil.Process(process.pid).children()
    found = [child for child in children if "boxcrew" in " ".join(child.cmdline())]
    return sorted(found, key=lambda child: int(child.environ()["RANK"]))


def require_gone(processes: list[psutil.Process], *, seconds: float) -> None:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    assert alive == []


def test_two_replicas_learn_what_one_does(start: Start, tmp_path: Path) -> None:
    steps = ("steps=5", "summaries.every_steps=1")
    alone = start(*steps, "out=alone")
    assert alone.wait(120) == 0, alone.communicate()
    both = start(*steps, "deploy.replicas=2", "deploy.shares=3,1")
    out, err = both.communicate(timeout=120)
    assert both.returncode == 0, err
    assert "plan: ddp on cpu (3) + cpu (1), batch 4" in out
    assert out.count("boxcrew 0.") == 1  # only the chief speaks
    run = tmp_path / "run"
    assert losses(run) == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)
    first, second = newest_tensors(run), newest_tensors(tmp_path / "alone")
    names = [name for name in first if name.startswith("task/")]
    assert distance({n: first[n] for n in names}, {n: second[n] for n in names}) < 1e-3
    assert json.loads((run / "summary.json").read_text())["state"] == "finished"
    assert (run / "replica_1.log").is_file()
    assert json.loads((run / "placement.json").read_text())["clones"][1]["samples"] == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_replica_is_named_and_takes_all_with_it(start: Start, tmp_path: Path, rank: int) -> None:
    process = start("steps=100000", "deploy.replicas=2")
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    assert len(replicas) == 2
    replicas[rank].kill()
    begun = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < 10
    assert process.returncode == 1
    assert f"replica {rank} was killed by SIGKILL" in err
    require_gone(replicas, seconds=1)


def test_a_killed_parent_takes_its_children_along(start: Start, tmp_path: Path) -> None:
    process = start("steps=100000", "deploy.replicas=2")
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    process.kill()
    require_gone(replicas, seconds=5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_replicas_stop_at_the_same_step_and_the_run_goes_on(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = start("steps=100000", "deploy.replicas=2")
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, (out, err)
    require_gone(replicas, seconds=1)
    stopped = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stopped["state"] == "interrupted"
    assert (tmp_path / "run" / "checkpoints" / f"{stopped['steps']:08d}" / "COMMIT").is_file()
    after = start(f"steps={stopped['steps'] + 2}", "deploy.replicas=1")
    assert after.wait(60) == 0, after.communicate()


def test_one_that_hangs_is_found_in_half_a_minute(start: Start, tmp_path: Path) -> None:
    process = start("steps=100000", "deploy.replicas=2")
    wait_for_step(tmp_path / "run", 2, process)
    replicas = replicas_of(process)
    replicas[1].suspend()
    begun = time.monotonic()
    _, err = process.communicate(timeout=90)
    assert "replica 1 has not been heard of" in err
    assert time.monotonic() - begun < 60
    assert process.returncode == 1
    require_gone(replicas, seconds=5)


def test_a_mistake_is_told_once_and_soon(start: Start, tmp_path: Path) -> None:
    process = start("deploy.replicas=2", "deploy.shares=9,9")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.count("deploy.shares=9,9: add up to 18, but batch=4") == 1
    assert "Traceback" not in err
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_processes_that_others_started_join(start: Start, tmp_path: Path) -> None:
    """As torchrun, SLURM or Kubernetes start them: nothing is spawned."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    seats = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [start("steps=3", RANK=str(rank), **seats) for rank in (0, 1)]
    for process in processes:
        assert process.wait(60) == 0, process.communicate()
    assert "ddp on cpu (2) + cpu (2)" in (tmp_path / "run" / "train.log").read_text()


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
