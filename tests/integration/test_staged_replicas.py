"""A run of stages with two replicas: both train, the chief solves, and both go on from what it found."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import multiprocessing as processes
from torch.multiprocessing.spawn import ProcessExitedException

from boxcrew.api import run_config
from boxcrew.core.errors import BoxcrewError
from boxcrew.deploy.processes.collectives import DistributedGroup
from boxcrew.deploy.processes.environments import ProcessEnvironment
from boxcrew.plan.plan import Plan
from boxcrew.train.loop.trainer import StepReport, Trainer
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import replicas, stages, train
from boxcrew.train.run.loading import load_task
from tests.helpers.forked import UNDRAWN, boxcrew
from tests.helpers.learning import distance
from tests.helpers.once import MakeOnce
from tests.helpers.processes import free_port
from tests.helpers.staged_detector import NAME, RidgeHeaded, registered

STAGES = ("1-features", "2-ridge", "3-tune")
WEIGHTS = ("weights/best.safetensors", "weights/last.safetensors")
Spoil = Callable[[int], None]
"""Done in each process before it begins; it is told its rank."""


def nothing(rank: int) -> None: ...


def _process(rank: int, settings: dict[str, Any], port: int, spoil: Spoil, folder: Path) -> None:
    torch.set_num_threads(1)
    spoil(rank)
    group = DistributedGroup(ProcessEnvironment(rank=rank, world_size=2, port=port))
    report: dict[str, Any] = {}
    try:
        with registered():
            if group.is_chief:
                report = train(run_config(NAME, settings), Screen(), group).summary
            else:
                replicas.train_replica(group, Screen())
    except BoxcrewError as error:
        group.report_failure(error.message)
        report = {"error": error.message}
    finally:
        group.close()
    (folder / f"{rank}.json").write_text(json.dumps(report))


def run_two(settings: dict[str, Any], folder: Path, spoil: Spoil = nothing) -> dict[str, Any]:
    """Return the summary of the chief, once both replicas have ended."""
    folder.mkdir(exist_ok=True)
    processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        _process, args=(settings, free_port(), spoil, folder), nprocs=2, start_method="forkserver"
    )
    assert json.loads((folder / "1.json").read_text()) == {}
    summary: dict[str, Any] = json.loads((folder / "0.json").read_text())
    return summary


def settings(photos: Path, out: Path, *, tuned: bool = True, replicas: int = 2) -> dict[str, Any]:
    deploy = {"strategy": "ddp", "replicas": 2} if replicas == 2 else {}
    return {
        "data": str(photos),
        "out": str(out),
        "detector": {"tuned": tuned},
        "evaluation": {"batch": 4},
        "deploy": {"threads": 1, **deploy},
    }


@pytest.fixture(scope="module")
def complete(photos: Path, make_once: MakeOnce) -> Path:
    """A run of three stages with two replicas that was never stopped."""

    def run(folder: Path) -> None:
        summary = run_two(settings(photos, folder / "run"), folder / "reports")
        assert (summary["state"], summary["steps"], summary["images"]) == ("finished", 12, 48)

    return make_once("staged_replicas", run) / "run"


def require_same_weights(first: Path, second: Path) -> None:
    for stage in STAGES:
        for name in WEIGHTS:
            assert (first / stage / name).read_bytes() == (second / stage / name).read_bytes(), (stage, name)


def test_replicas_train_and_the_chief_solves(photos: Path, complete: Path, tmp_path: Path) -> None:
    plans = [Plan.read(complete / stage / "plan.json", setting="plan") for stage in STAGES]
    assert [(plan.strategy, len(plan.replicas)) for plan in plans] == [("ddp", 2), ("single", 1), ("ddp", 2)]
    for stage, is_trained in zip(STAGES, (True, False, True), strict=True):
        log = complete / stage / "replica_1.log"
        assert log.is_file() == is_trained
        assert not is_trained or "ended after step 6" in log.read_text()
    with registered():
        train(run_config(NAME, settings(photos, tmp_path / "alone", replicas=1)), Screen())
        for stage in STAGES:
            together, alone = (
                load_task(run / stage, which="last", device="cpu").task.state_dict()
                for run in (complete, tmp_path / "alone")
            )
            assert distance(together, alone) < 1e-3, stage


def test_sharded_parameters_are_whole_between_stages(photos: Path, complete: Path, tmp_path: Path) -> None:
    run = settings(photos, tmp_path / "run")
    run["deploy"]["strategy"] = "fsdp"
    summary = run_two(run, tmp_path / "reports")
    assert (summary["state"], summary["steps"]) == ("finished", 12)
    with registered():
        for stage in STAGES:
            sharded, whole = (
                load_task(folder / stage, which="last", device="cpu").task.state_dict()
                for folder in (tmp_path / "run", complete)
            )
            assert distance(sharded, whole) < 1e-3, stage


def _kill_chief(where: str, rank: int) -> None:
    """Let it be killed at a call."""
    owner, name, number = FAULTS[where]
    original, calls = getattr(owner, name), []

    def call(*args: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)

    if rank == 0:
        setattr(owner, name, call)


FAULTS: dict[str, tuple[object, str, int]] = {
    "in the solve": (RidgeHeaded, "_examples", 2),
    "at the start of stage 3": (stages, "prepare", 2),
    "in a step of stage 3": (Trainer, "_update", 11),
}


@pytest.mark.parametrize("where", FAULTS)
def test_a_killed_chief(where: str, photos: Path, complete: Path, tmp_path: Path) -> None:
    """-> the other ends, too, and with two new ones the end is bit-equal."""
    run = settings(photos, tmp_path / "run")
    with pytest.raises(ProcessExitedException):
        run_two(run, tmp_path / "killed", partial(_kill_chief, where))
    summary = run_two(run, tmp_path / "reports")
    assert (summary["state"], summary["steps"]) == ("finished", 12)
    require_same_weights(tmp_path / "run", complete)


def _interrupt(step: int, signaled: int, rank: int) -> None:
    original = Trainer._do_step

    def do_step(self: Trainer) -> StepReport:
        if self.step == step and rank == signaled:
            signal.raise_signal(signal.SIGINT)
        return original(self)

    Trainer._do_step = do_step  # type: ignore[method-assign]


@pytest.mark.parametrize("signaled", [0, 1])
def test_an_interrupted_stage_ends_both(photos: Path, complete: Path, tmp_path: Path, signaled: int) -> None:
    """Although others would follow it."""
    run = settings(photos, tmp_path / "run")
    summary = run_two(run, tmp_path / "stopped", partial(_interrupt, 3, signaled))
    assert (summary["state"], summary["steps"]) == ("interrupted", 4)
    run_two(run, tmp_path / "reports")
    require_same_weights(tmp_path / "run", complete)


def test_nothing_but_a_solve_is_left(photos: Path, tmp_path: Path) -> None:
    """-> the other replica is not needed, and ends."""
    run = settings(photos, tmp_path / "run", tuned=False)
    with pytest.raises(ProcessExitedException):
        run_two(run, tmp_path / "killed", partial(_kill_chief, "in the solve"))
    assert run_two(run, tmp_path / "reports")["state"] == "finished"


REGISTER = """
from tests.helpers import staged_detector
toy = staged_detector.registered()
toy.__enter__()
"""


def test_the_command_starts_the_replicas(photos: Path, complete: Path, home: Path, tmp_path: Path) -> None:
    words = (f"data={photos}", "out=run", "detector.tuned=true", "evaluation.batch=4", "deploy.threads=1")
    command = ("train", NAME, *words, "deploy.replicas=2")
    process = boxcrew(*command, first=REGISTER + UNDRAWN, cwd=tmp_path, HOME=str(home))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert out.count("plan: ddp on cpu (2) + cpu (2)") == 2
    assert "training, all stages: " in out
    require_same_weights(tmp_path / "run", complete)
