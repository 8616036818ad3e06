"""Runs whose replicas are lost, come and leave: the whole command in processes that tests may kill."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.forked import UNDRAWN, Forked, boxcrew
from tests.helpers.once import MakeOnce
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
