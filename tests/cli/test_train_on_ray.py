"""Trainings on a cluster of Ray on this machine, whose replicas are killed, where Ray is installed."""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from boxcrew.api import run_config
from boxcrew.cli.train_on_ray import _passed_on, _progress
from boxcrew.plan.request import ReplicaRange
from tests.helpers.runs import newest_tensors, require_equal, rows_without_times

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="needs Ray: pip install 'boxcrew[train,ray]'")

WORDS = ("fc", "batch=16", "loader.workers=0", "net.widths=16", "deploy.threads=1", "deploy.replicas=2")
STEPS, SAVED = 400, 50
LONG = (
    f"steps={STEPS}",
    f"saver.every_steps={SAVED}",
    "summaries.every_steps=1",
    "summaries.tensorboard=false",
    "evaluation.at=1",
)
_SECONDS = 240.0  # that anything here may take, at most

Call = Callable[..., Any]


class Training:
    """`boxcrew train` in a process of its own, with what it has printed."""

    def __init__(self, *words: str, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "boxcrew", "train", *words],
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._outputs = ["", ""]
        streams = (self.process.stdout, self.process.stderr)
        self._threads = [
            threading.Thread(target=self._read, args=pair, daemon=True) for pair in enumerate(streams)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, number: int, stream: Any) -> None:
        self._outputs[number] = ""
        for line in stream:
            self._outputs[number] += line

    @property
    def said(self) -> str:
        return "".join(self._outputs)

    def replica(self, rank: int) -> psutil.Process:
        """The process of a replica, once it is there."""
        while True:
            assert self.process.poll() is None, self.said
            for child in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    words, variables = child.cmdline(), child.environ()
                except psutil.Error:
                    continue
                if words[1:4] == ["-m", "boxcrew", "train"] and variables.get("RANK") == str(rank):
                    return child
            time.sleep(0.02)

    def wait_for_step(self, run: Path, step: int) -> None:
        while _step(run) < step:
            assert self.process.poll() is None, self.said
            time.sleep(0.02)

    def end(self) -> tuple[int, str, str]:
        code = self.process.wait(_SECONDS)
        for thread in self._threads:
            thread.join()
        return code, self._outputs[0], self._outputs[1]


def _step(run: Path) -> int:
    try:
        return int(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"])
    except (OSError, ValueError, IndexError, KeyError):
        return 0


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of three kinds that overlap."""
    folder, rng = tmp_path_factory.mktemp("table"), np.random.default_rng(0)
    for split, count in (("train", 180), ("val", 30)):
        rows = ["a,b,kind"]
        for index in range(count):
            kind = index % 3
            a, b = rng.normal((kind, -kind), 1.0)
            rows.append(f"{a:.3f},{b:.3f},{'xyz'[kind]}")
        (folder / f"{split}.csv").write_text("\n".join(rows) + "\n")
    return folder


@needs_ray
def test_killed_replicas_begin_again_and_learn_the_same(table: Path, home: Path, tmp_path: Path) -> None:
    """Replica 1, and later the actor of the chief, are killed -> each step once, and the same weights."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    training = Training(*WORDS, *LONG, f"data={table}", f"out={run}", "on=ray", home=home)
    training.wait_for_step(run, SAVED + 10)
    training.replica(1).kill()
    training.wait_for_step(run, 3 * SAVED)
    actor = training.replica(0).parent()
    assert actor is not None
    actor.kill()
    code, out, err = training.end()
    assert code == 0, out + err
    assert "replica 1 was killed by SIGKILL; all replicas begin again" in out
    assert "replica 0 is gone, with its machine or a process on it; all replicas begin again" in out
    assert [row["step"] for row in rows_without_times(run) if "rate" in row] == list(range(1, STEPS + 1))
    assert Training(*WORDS, *LONG, f"data={table}", f"out={whole}", home=home).end()[0] == 0
    require_equal(newest_tensors(run), newest_tensors(whole))
    assert rows_without_times(run) == rows_without_times(whole)


@needs_ray
def test_a_signal_lets_it_save_and_end(table: Path, home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    training = Training(
        *WORDS, *LONG[1:], "steps=100000", f"data={table}", f"out={run}", "on=ray", "--json", home=home
    )
    training.wait_for_step(run, 20)
    training.process.send_signal(signal.SIGTERM)
    code, out, err = training.end()
    assert code == 130, out + err
    summary = json.loads(out)
    assert (summary["state"], summary["run"]) == ("interrupted", str(run))
    assert (run / "checkpoints" / f"{summary['steps']:08d}").is_dir()
    assert not any((run / name).exists() for name in ("lock", "lease"))


@needs_ray
def test_an_error_of_the_user_ends_it_at_once(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a,b,kind\n1,2,x\n1,z,y\n")
    run = tmp_path / "run"
    code, out, err = Training(*WORDS, "steps=5", f"data={tmp_path}", f"out={run}", "on=ray", home=home).end()
    assert code == 3, out + err
    assert err.count("error: ") == 1
    assert out.count("ray: 2 replicas") == 1
    assert not run.exists()


@needs_ray
def test_replicas_that_are_killed_again_and_again(table: Path, home: Path, tmp_path: Path) -> None:
    training = Training(*WORDS, *LONG, f"data={table}", f"out={tmp_path / 'run'}", "on=ray", home=home)
    for _ in range(3):
        replica = training.replica(1)
        replica.kill()
        replica.wait(10)
    code, out, err = training.end()
    assert code == 1, out + err
    assert "error: replica 1 was killed by SIGKILL, 3 times in a row without a new checkpoint" in err


@needs_ray
def test_a_cluster_that_is_not_there(
    boxcrew: Call, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    result = boxcrew("train", *WORDS, f"data={table}", f"out={tmp_path / 'run'}", "on=ray")
    assert result.code == 2
    assert f"RAY_ADDRESS={address}: this cluster does not answer" in result.err
    assert not (tmp_path / "run").exists()


@needs_ray
def test_replicas_share_the_cores_of_all_machines() -> None:
    from boxcrew.deploy.processes.on_ray.slots import resources_of_each

    large, small = {"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}
    assert resources_of_each([large, small], 2, gpu=False) == {"CPU": 4.0}
    assert resources_of_each([large, small], 3, gpu=False) == {"CPU": 4.0}
    assert resources_of_each([large, small], 4, gpu=False) == {"CPU": 2.0}
    assert resources_of_each([large, small], 2, gpu=True) == {"CPU": 4.0, "GPU": 1.0}
    assert resources_of_each([small], 9, gpu=False) == {"CPU": 1.0}


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_it_says_what_to_install(boxcrew: Call, table: Path) -> None:
    result = boxcrew("train", *WORDS, f"data={table}", "on=ray")
    assert result.code == 2
    assert "pip install 'boxcrew[train,ray]'" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("on=rya",), "on: input should be 'machine' or 'ray'"),
        (("on=ray", "--explain"), "--explain: explains a training on this machine"),
        (("on=ray", "deploy.strategy=parameter_server"), "deploy.strategy=parameter_server: not with on=ray"),
    ],
)
def test_what_does_not_go_together(boxcrew: Call, table: Path, words: tuple[str, ...], message: str) -> None:
    result = boxcrew("train", *WORDS, f"data={table}", *words)
    assert result.code == 2
    assert message in result.err


def test_every_start_gets_the_same_words() -> None:
    words = ["fc", "--epochs", "3", "out=somewhere", "name=mine", "on=ray", "deploy.replicas=1:4", "batch=8"]
    config = run_config("fc", {"deploy": {"replicas": "1:4"}})
    passed = _passed_on(words, config, Path("/runs/a"), ReplicaRange(1, 4), as_json=True)
    assert passed == [
        "train",
        "fc",
        "epochs=3",
        "batch=8",
        "deploy.logical_clones=4",
        "deploy.replicas=1:4",
        "out=/runs/a",
        "--json",
    ]
    fixed = _passed_on(["fc", "on=ray"], config, Path("/runs/a"), ReplicaRange(2, 2), as_json=False)
    assert fixed == ["train", "fc", "deploy.replicas=2", "out=/runs/a"]


def test_progress_is_a_new_checkpoint(tmp_path: Path) -> None:
    progress = _progress(tmp_path)
    seen = [progress()]
    for step in ("00000050", "00000100"):
        folder = tmp_path / "checkpoints" / step
        folder.mkdir(parents=True)
        assert progress() == seen[-1], "it is not whole yet"
        (folder / "COMMIT").touch()
        seen.append(progress())
    assert len(set(seen)) == 3
