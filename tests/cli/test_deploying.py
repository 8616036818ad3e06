"""Devices, explanations, and clones on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boxcrew.deploy.processes import launch
from boxcrew.hardware.machine import Machine
from tests.helpers.tiny import TINY, TINY_NET

Call = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("boxcrew.hardware.speed.MOMENT", 0.001)


def test_devices_are_shown_written_and_read_back(boxcrew: Call, tmp_path: Path) -> None:
    written = boxcrew("devices", "--json")
    assert written.code == 0, written.err
    machine = Machine.of(json.loads(written.out))
    assert machine.devices[0].speeds is not None
    described = tmp_path / "mine.json"
    device = machine.devices[0].model_copy(update={"name": "cuda:0", "kind": "cuda", "model": "a dream"})
    dreamt = machine.model_copy(update={"devices": (*machine.devices, device), "numa_nodes": 2})
    described.write_text(json.dumps(dreamt.tree()))
    shown = boxcrew("devices", f"machine={described}")
    assert shown.code == 0, shown.err
    assert "a dream" in shown.out
    assert "2 NUMA nodes" in shown.out
    assert "GFLOP" in shown.out


def machine_with(**changes: object) -> str:
    cpu = {"name": "cpu", "kind": "cpu", "model": "a CPU", "memory_bytes": 1 << 30}
    known = {"platform": "Linux", "python": "3", "torch": "2", "cores": 2, "memory_bytes": 1 << 30}
    return json.dumps(known | {"devices": [cpu]} | changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ('{"cores": 2}', "platform: must be given"),
        ('{"coers": 1}', "did you mean 'cores'"),
        (machine_with(memory_bytes=-1), "memory_bytes"),
        (machine_with(devices=[]), "devices"),
    ],
)
def test_a_description_that_is_none(boxcrew: Call, tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "machine.json"
    if content is not None:
        file.write_text(content)
    result = boxcrew("devices", f"machine={file}")
    assert result.code == 2
    assert f"machine={file}" in result.err
    assert message in result.err


def test_devices_know_no_other_setting(boxcrew: Call) -> None:
    result = boxcrew("devices", "machnie=x")
    assert result.code == 2
    assert "did you mean 'machine'" in result.err


def test_explain_shows_the_roles_and_leaves_nothing(boxcrew: Call, tiny_set: Path, tmp_path: Path) -> None:
    words = ("train", f"data={tiny_set}", *TINY_NET, "batch=8", "deploy.clones=2", "deploy.clone_on_cpu=true")
    result = boxcrew(*words, "deploy.shares=5,3", "--explain")
    assert result.code == 0, result.err
    for message in ("inputs device", "parameter device", "optimizer device", "clone_0", "5 of 8", "3 of 8"):
        assert message in result.out
    explained = json.loads(boxcrew(*words, "--explain", "--json").out)
    assert [clone["samples"] for clone in explained["clones"]] == [4, 4]
    assert explained["plan"]["strategy"] == "clones"
    assert set(explained["parameters"].values()) == {"cpu"}
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_clones_goes_on_with_one(boxcrew: Call, tiny_set: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    clones = ("deploy.clones=2", "deploy.clone_on_cpu=true", "deploy.batch_norm=synced")
    words = ("train", f"data={tiny_set}", *TINY, "loader.workers=0", f"out={run}", "steps=2")
    first = boxcrew(*words, *clones)
    assert first.code == 0, first.err
    assert "clones on cpu (2) + cpu (2), batch 4" in first.out
    assert "BatchNorm uses the statistics of all clones together" in first.out
    placed = json.loads((run / "placement.json").read_text())
    assert [clone["name"] for clone in placed["clones"]] == ["clone_0", "clone_1"]
    alone = ("deploy.clones=1", "deploy.clone_on_cpu=false")
    second = boxcrew("resume", f"run={run}", "steps=4", *alone)
    assert second.code == 0, second.err
    assert "single on cpu, batch 4" in second.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("deploy.clones=2", "device=cpu"), "more than there are accelerators"),
        (("deploy.clones=2", "deploy.clone_on_cpu=true", "deploy.shares=3,3"), "add up to 6"),
        (("deploy.clones=0",), "deploy.clones"),
        (("device=abacus",), "device=abacus: not on this machine"),
        (("deploy.strategy=clowns",), "deploy.strategy"),
        (("deploy.replicas=2", "deploy.shares=9,9"), "deploy.shares=9,9: add up to 18, but batch=4"),
        (
            ("deploy.replicas=2", "deploy.strategy=clones"),
            "deploy.strategy=clones: cannot be used with deploy.replicas=2",
        ),
        (("deploy.replicas=2", "device=abacus"), "device=abacus: not on this machine"),
        (("deploy.replicas=5",), "5 clones: more than batch=4 has samples"),
        (
            ("deploy.replicas=2", "deploy.strategy=fsdp", "deploy.precision=fp16"),
            "fsdp does not compute in fp16",
        ),
        (
            ("deploy.servers=2", "deploy.strategy=ddp"),
            "deploy.servers=2: cannot be used with deploy.strategy=ddp",
        ),
        (
            ("deploy.servers=2", "deploy.replicas=2", "deploy.staleness=1", "deploy.batch_norm=synced"),
            "staleness",
        ),
    ],
)
def test_what_cannot_be_deployed_is_refused_before_anything_is_made(
    boxcrew: Call,
    tiny_set: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr(launch, "start_processes", _no_process)
    result = boxcrew("train", f"data={tiny_set}", *TINY, "steps=1", *words)
    assert result.code == 2
    assert message in result.err
    assert not (tmp_path / "runs").exists()


def _no_process(*_: object, **__: object) -> None:
    raise AssertionError("processes were started")


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_plan_for_another_task_is_refused(
    boxcrew: Call, tiny_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    monkeypatch.setattr(launch, "start_processes", _no_process)
    words = ("train", f"data={tiny_set}", *TINY, f"deploy.replicas={replicas}")
    plan = json.loads(boxcrew(*words, "--explain", "--json").out)["plan"]
    assert plan["task"] == "detection by ssdlite"
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan | {"task": "detection by ssd"}))
    result = boxcrew("train", f"data={tiny_set}", *TINY, f"plan={file}")
    assert result.code == 2
    assert f"plan={file}: was made for detection by ssd, not for detection by ssdlite" in result.err
    file.write_text(json.dumps(plan | {"task": None}))
    assert boxcrew("train", f"data={tiny_set}", *TINY, f"plan={file}", "--explain").code == 0


def test_another_batch_than_the_recipes_is_said_and_scaled_on_demand(boxcrew: Call, tiny_set: Path) -> None:
    net = ("train", f"data={tiny_set}", *TINY_NET)
    words = (*net, "batch=2")
    result = boxcrew(*words, "--explain")
    assert "optim.rate 0.002 is stated for batch 8 and used for 2 as it is" in result.out
    assert "for batch 2 it is 0.001" in boxcrew(*words, "--explain", "optim.rescale=sqrt").out
    same = boxcrew(*net, "--explain", "batch=8")
    assert same.code == 0
    assert "optim.rate" not in same.out
    fixed = ("schedule=fixed", "schedule.warmup=0", "steps=1", "summaries.every_steps=1", "out=run")
    trained = boxcrew(*words, *fixed, "optim.rescale=linear", "loader.workers=0")
    assert "for batch 2 it is 0.0005" in trained.out
    assert json.loads(Path("run/metrics.jsonl").read_text().splitlines()[0])["rate"] == 0.0005
    adrift = boxcrew(*words, "optim=sgd", "optim.rescale=linear")
    assert adrift.code == 2
    assert "optim.reference_batch" in adrift.err
