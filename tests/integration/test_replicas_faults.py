"""What goes wrong or ends early with two replicas. Each test says what is injected and what must hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import multiprocessing as processes
from torch.multiprocessing.spawn import ProcessExitedException

from boxcrew.core.errors import BoxcrewError, DataError
from boxcrew.core.types import Batch, Losses
from boxcrew.data.detection import source
from boxcrew.data.images.packed import ImagePath
from boxcrew.data.images.reading import read_image
from boxcrew.deploy.processes.collectives import DistributedGroup
from boxcrew.deploy.processes.environments import ProcessEnvironment
from boxcrew.recipes import RECIPES
from boxcrew.tasks import frechet_features
from boxcrew.tasks.detection import DetectionTask
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning import workload as needs
from boxcrew.train.run import replicas, train
from tests.helpers.learning import distance
from tests.helpers.made_examples import make_folder
from tests.helpers.processes import free_port
from tests.helpers.runs import newest_tensors, rows_without_times

MakeConfig = Callable[..., RunConfig]
Spoil = Callable[[int], None]
"""Done in each process before it begins; it is told its rank."""

SERVERS = {"ddp": 0, "fsdp": 0, "parameter_server": 1}


def nothing(rank: int) -> None: ...


def _process(rank: int, tree: dict[str, Any], port: int, spoil: Spoil, folder: Path) -> None:
    torch.set_num_threads(1)
    config = RunConfig.of(tree)
    servers = SERVERS[config.deploy.strategy]
    spoil(rank)
    group = DistributedGroup(
        ProcessEnvironment(rank=rank, world_size=_num_replicas(config) + servers, port=port),
        num_servers=0 if rank else servers,  # the others hear it from the chief
    )
    try:
        if group.is_chief:
            report: dict[str, Any] = train(config, Screen(), group).summary
        else:
            (replicas.run_parameter_server if group.is_server else replicas.train_replica)(group, Screen())
            report = {}
    except BoxcrewError as error:
        group.report_failure(error.message)
        report = {"error": error.message}
    finally:
        group.close()
    (folder / f"{rank}.json").write_text(json.dumps(report))


def _num_replicas(config: RunConfig) -> int:
    return config.deploy.replicas if isinstance(config.deploy.replicas, int) else 2


def run_two(config: RunConfig, folder: Path, spoil: Spoil = nothing) -> list[dict[str, Any]]:
    """What two replicas, or as many as asked for, report: the chief its summary, or each its error."""
    folder.mkdir(exist_ok=True)
    processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        _process,
        args=(config.tree(), free_port(), spoil, folder),
        nprocs=_num_replicas(config) + SERVERS[config.deploy.strategy],
        start_method="forkserver",
    )
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(_num_replicas(config))]


def two(strategy: str = "ddp", **deploy: object) -> dict[str, object]:
    return {"strategy": strategy, "replicas": 2, "threads": 1, **deploy}


def ended_after(run: Path) -> int:
    """The step after which the second replica ended, by its log."""
    return int((run / "replica_1.log").read_text().rpartition("ended after step ")[2].partition(":")[0])


def _spoil_losses(change: Callable[[int, Losses], Losses], only: int, rank: int) -> None:
    original = DetectionTask.forward
    calls = iter(range(10**6))

    def forward(self: DetectionTask, batch: Batch, phase: str = "train") -> Losses:
        losses = original(self, batch, phase)
        return change(next(calls), losses) if rank == only else losses

    DetectionTask.forward = forward  # type: ignore[method-assign]


def _nan(first: int, last: int, call: int, losses: Losses) -> Losses:
    spoilt = {name: value * float("nan") for name, value in losses.terms.items()}
    return replace(losses, terms=spoilt) if first <= call <= last else losses


@pytest.mark.parametrize("strategy", SERVERS)
def test_a_loss_that_is_no_number_on_one_replica(
    config: MakeConfig, photos: Path, tmp_path: Path, strategy: str
) -> None:
    """In one step -> both leave that step out."""
    run_settings = config(photos, tmp_path / "run", deploy=two(strategy), steps=4)
    summary, _ = run_two(run_settings, tmp_path / "reports", partial(_spoil_losses, partial(_nan, 2, 2), 1))
    assert (summary["state"], summary["steps"], summary["skipped_steps"]) == ("finished", 4, 1)
    assert "step 3 is skipped" in (tmp_path / "run" / "replica_1.log").read_text()


@pytest.mark.parametrize("strategy", SERVERS)
def test_a_bad_stretch_on_one_replica(
    config: MakeConfig, photos: Path, tmp_path: Path, strategy: str
) -> None:
    """Several steps in a row -> both go back to the same checkpoint and on at half the rate."""
    run_settings = config(photos, tmp_path / "run", deploy=two(strategy), guard={"failures": 2}, steps=8)
    summary, _ = run_two(run_settings, tmp_path / "reports", partial(_spoil_losses, partial(_nan, 4, 5), 1))
    assert (summary["state"], summary["steps"], summary["rollbacks"]) == ("finished", 8, 1)
    for file in ("train.log", "replica_1.log"):
        assert "continuing from step 3 at 0.5 of the learning rate" in (tmp_path / "run" / file).read_text()
    assert ended_after(tmp_path / "run") == 8


def test_a_limit_in_seconds(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """-> both end after the same step, by the chief's clock."""
    run_settings = config(photos, tmp_path / "run", deploy=two(), steps=None, time="1s")
    summary, _ = run_two(run_settings, tmp_path / "reports")
    assert summary["state"] == "finished"
    assert summary["steps"] == ended_after(tmp_path / "run")
    assert summary["train_seconds"] >= 1


def test_early_stop(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """The chief alone evaluates -> it stops both."""
    run_settings = config(
        photos,
        tmp_path / "run",
        deploy=two(),
        steps=40,
        optim={"rate": 1e-9},
        evaluation={"every_epochs": 1, "patience": 2},
    )
    summary, _ = run_two(run_settings, tmp_path / "reports")
    assert summary["steps"] < 40
    assert summary["steps"] == ended_after(tmp_path / "run")
    assert "another replica has stopped" in (tmp_path / "run" / "replica_1.log").read_text()


def _out_of_memory(call: int, losses: Losses) -> Losses:
    if call == 2:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    return losses


def test_memory_runs_out_on_one_replica(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """-> the run ends; the chief says which replica it was, and what would help."""
    run_settings = config(photos, tmp_path / "run", deploy=two())
    chief, other = run_two(run_settings, tmp_path / "reports", partial(_spoil_losses, _out_of_memory, 1))
    assert "replica 1: too little memory for a step in 1 micro-batches" in other["error"]
    assert chief["error"].startswith("replica 1 failed: replica 1: too little memory")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "failed"


def _other_data(rank: int) -> None:
    original = replicas.load_task_data  # type: ignore[attr-defined]

    def load(given: Any, **settings: Any) -> Any:
        opened: Any = original(given, **settings)
        return replace(opened, train=opened.train[:-1])

    if rank:
        replicas.load_task_data = load  # type: ignore[attr-defined,assignment]


def test_data_that_differ(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """The second replica finds an image less -> an error on both before the first step."""
    chief, other = run_two(config(photos, tmp_path / "run", deploy=two()), tmp_path / "reports", _other_data)
    assert "differs from the data of replica 0" in other["error"]
    assert "differs from the data of replica 0" in chief["error"]


def _no_images(blind: int, first: int, rank: int) -> None:
    """From that image on, in one replica."""
    calls = iter(range(10**6))

    def read(path: ImagePath, *arguments: Any, **settings: Any) -> Any:
        if rank == blind and first <= next(calls) < first + 2:
            raise DataError(f"{path}: gone")
        return read_image(path, *arguments, **settings)

    source.read_image = read  # type: ignore[attr-defined]
    needs.measure_inputs = lambda *_: None  # which reads before the first step


@pytest.mark.parametrize(
    ("blind", "first", "norms", "file"),
    [(0, 0, "first", "train.log"), (1, 2, "synced", "replica_1.log")],
    ids=["the chief at first", "another later"],
)
def test_images_that_one_replica_cannot_read(
    config: MakeConfig, photos: Path, tmp_path: Path, blind: int, first: int, norms: str, file: str
) -> None:
    """It can read none of its share for some steps -> the other's count, and all goes on."""
    run_settings = config(
        photos,
        tmp_path / "run",
        deploy=two(batch_norm=norms),
        loader={"workers": 0, "cache": 0},
        summaries={"images": 2},
        steps=5,
    )
    summary, _ = run_two(run_settings, tmp_path / "reports", partial(_no_images, blind, first))
    assert (summary["state"], summary["steps"]) == ("finished", 5)
    assert "gone" in (tmp_path / "run" / file).read_text()


def test_one_replica_and_a_server(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """Also where a run is long enough to try ways to compute -> the same as one process."""
    deploy = {"strategy": "parameter_server", "replicas": 1, "threads": 1}
    long = config(
        photos, tmp_path / "long", deploy={**deploy, "memory_format": "auto"}, steps=None, time="1s"
    )
    assert run_two(long, tmp_path / "reports")[0]["state"] == "finished"
    run_two(config(photos, tmp_path / "served", deploy=deploy, steps=3), tmp_path / "reports")
    train(config(photos, tmp_path / "alone", steps=3), Screen())
    assert _numbers(tmp_path / "served") == pytest.approx(_numbers(tmp_path / "alone"), rel=1e-5)


def _fails(call: int, losses: Losses) -> Losses:
    if call == 3:
        raise BoxcrewError("no more paper")
    return losses


def test_a_failure_at_ones_own_pace(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """The second replica fails, and no replica waits for another -> the chief hears of it all the same."""
    run_settings = config(photos, tmp_path / "run", deploy=two("parameter_server", staleness=50), steps=10**6)
    with pytest.raises(ProcessExitedException) as caught:
        run_two(run_settings, tmp_path / "reports", partial(_spoil_losses, _fails, 1))
    assert caught.value.exit_code == 1
    report = json.loads((tmp_path / "reports" / "1.json").read_text())
    assert report == {"error": "no more paper"}


def _numbers(run: Path) -> list[float]:
    return [row["loss"] for row in rows_without_times(run) if "loss" in row]


def test_loader_workers_and_a_plan_that_is_replayed(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """Workers in both replicas -> the same run; so is one of the first one's plan.json."""
    first = config(photos, tmp_path / "first", deploy=two(shares=[3, 1]), steps=4)
    run_two(first, tmp_path / "reports")
    busy = config(photos, tmp_path / "busy", deploy=two(shares=[3, 1]), steps=4, loader={"workers": 2})
    run_two(busy, tmp_path / "reports")
    plan = str(tmp_path / "first" / "plan.json")
    again = config(photos, tmp_path / "again", plan=plan, deploy={"strategy": "ddp"}, steps=4)
    run_two(again, tmp_path / "reports")
    wanted = _numbers(tmp_path / "first")
    assert wanted
    assert _numbers(tmp_path / "busy") == wanted
    assert _numbers(tmp_path / "again") == wanted


def test_frozen_statistics(config: MakeConfig, photos: Path, tmp_path: Path) -> None:
    """-> they stay as they were, and the split does not matter to what is learned."""
    frozen = {"batch_norm": "frozen"}
    run_two(config(photos, tmp_path / "two", deploy=two(**frozen), steps=3), tmp_path / "reports")
    train(config(photos, tmp_path / "one", deploy=frozen, steps=3), Screen())
    actual, wanted = newest_tensors(tmp_path / "two"), newest_tensors(tmp_path / "one")
    assert actual.keys() == wanted.keys()
    statistics = [name for name in actual if name.startswith("task/") and "running" in name]
    assert statistics
    assert all(set(actual[name].tolist()) <= {0.0, 1.0} for name in statistics)  # as they begin
    learned = [name for name in actual if name.startswith("task/") and name not in statistics]
    assert distance({n: actual[n] for n in learned}, {n: wanted[n] for n in learned}) < 1e-4


def test_a_run_goes_on_under_any_strategy_as_if_there_were_one(
    config: MakeConfig, photos: Path, tmp_path: Path
) -> None:
    """One process, then two under each strategy in turn, in one run -> as one process all along."""
    settings = {
        "optim": {
            "name": "momentum",
            "rate": 1e-4,
            "ema": 0.5,
        },  # larger steps tell any two ways to add apart
        "schedule": {"name": "fixed", "warmup": 0},
        "summaries": {"every_steps": 1},
    }
    synced = {"batch_norm": "synced"}
    train(config(photos, tmp_path / "alone", steps=5, deploy=synced, **settings), Screen())
    run = tmp_path / "run"
    train(config(photos, run, steps=1, deploy=synced, **settings), Screen())
    for steps, strategy in enumerate(SERVERS, 2):
        deploy = two(strategy, shares=[3, 1], **synced)
        summary, _ = run_two(
            config(photos, run, steps=steps, deploy=deploy, **settings), tmp_path / "reports"
        )
        assert (summary["state"], summary["steps"]) == ("finished", steps)
        assert ended_after(run) == steps
    train(config(photos, run, steps=5, deploy={**synced, "strategy": "auto"}, **settings), Screen())
    assert _numbers(run) == pytest.approx(_numbers(tmp_path / "alone"), rel=1e-3)
    first, second = newest_tensors(run), newest_tensors(tmp_path / "alone")
    assert first.keys() == second.keys()
    for kind in ("task/", "ema/"):
        names = [name for name in first if name.startswith(kind)]
        assert distance({n: first[n] for n in names}, {n: second[n] for n in names}) < 1e-3


def _judge_quickly(rank: int) -> None:
    frechet_features.STEPS = 1


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_gan_goes_on_as_if_it_had_never_been_stopped(strategy: str, tmp_path: Path) -> None:
    """Stopped after one of four steps, in the middle of a turn of its phases -> the same to the last bit."""
    settings = {
        "data": str(make_folder(tmp_path / "pictures")),
        "size": 28,
        "batch": 4,
        "task": {"width": 4, "latent": 4, "critic_steps": 2},
        "deploy": two(strategy),
        "loader": {"workers": 0},
        "evaluation": {"every_epochs": 1000, "batch": 8},
        "summaries": {"tensorboard": False, "images": 0},
    }

    def gan(out: Path, steps: int) -> RunConfig:
        return RECIPES.get("gan")().changed({**settings, "out": str(out), "steps": steps})

    whole, stopped = tmp_path / "unstopped", tmp_path / "stopped"
    for out, steps in ((whole, 4), (stopped, 1), (stopped, 4)):
        summary, _ = run_two(gan(out, steps), tmp_path / "reports", _judge_quickly)
        assert summary.get("steps") == steps, summary
    actual, wanted = newest_tensors(stopped), newest_tensors(whole)
    assert actual.keys() == wanted.keys()
    assert any(name.startswith("optimizer/") for name in actual)
    assert all(torch.equal(actual[name], wanted[name]) for name in wanted)
