"""Plans from settings and a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.core.stage import Stage
from boxcrew.hardware.machine import Device, Host, Machine
from boxcrew.plan.plan import Plan, Replica
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint, write_checkpoint
from boxcrew.train.planning.from_settings import (
    choose_plan,
    planned_processes,
    planned_servers,
    resumed_plan,
    with_clones_of,
)
from boxcrew.train.run.record import plan_before
from tests.helpers import staged_detector
from tests.helpers.workloads import a_workload

CPU = Device(name="cpu", kind="cpu", model="a CPU", memory_bytes=1 << 34)
MACHINE = Machine(platform="Linux", python="3.11", torch="2", cores=4, memory_bytes=1 << 34, devices=(CPU,))
FULL, DEPTHWISE = a_workload(depthwise=False), a_workload(depthwise=True)


def config(**settings: object) -> RunConfig:
    return RunConfig.of({"steps": 1, "batch": 6, **settings})


def test_settings_reach_the_plan() -> None:
    plan = choose_plan(
        config(loader={"workers": 0}, deploy={"threads": 2, "accumulation": 3}), MACHINE, FULL, num_samples=60
    )
    assert (plan.batch, plan.accumulation, plan.threads, plan.loader_workers) == (6, 3, 2, 0)
    assert plan.memory_format == "contiguous"
    assert choose_plan(config(), MACHINE, DEPTHWISE, num_samples=60).memory_format == "channels_last"


def test_a_given_plan_is_used_word_for_word(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    written = choose_plan(config(batch=2), MACHINE, FULL, num_samples=60).tree() | {"reasons": ["by hand"]}
    path.write_text(json.dumps(written))
    assert choose_plan(config(plan=str(path)), MACHINE, DEPTHWISE, num_samples=60) == Plan.of(written)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "group of settings"),
        ('{"batch": 1}', "replicas"),
        ('{"replicas": []}', "replicas"),
        (None, "No such file"),
    ],
)
def test_a_plan_that_is_none_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=message):
        choose_plan(config(plan=str(path)), MACHINE, FULL, num_samples=60)


def test_a_plan_for_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    written = choose_plan(config(), MACHINE, FULL, num_samples=60).tree()
    elsewhere = {"clones": [{"device": "cuda:0", "share": 6}]}
    for change in ({"replicas": [elsewhere]}, {"parameter_device": "cuda:0", "optimizer_device": "cuda:0"}):
        path.write_text(json.dumps(written | {"strategy": "clones"} | change))
        with pytest.raises(UsageError, match="device cuda:0 is not on this machine") as caught:
            choose_plan(config(plan=str(path)), MACHINE, FULL, num_samples=60)
        assert caught.value.advice == "it has: cpu"


@pytest.fixture
def begun() -> Plan:
    """A run that a trial gave another format and fewer threads than the rule does."""
    tried = {"memory_format": "contiguous", "threads": 1}
    return choose_plan(config(), MACHINE, DEPTHWISE, num_samples=60).model_copy(update=tried)


def goes_on(begun: Plan, machine: Machine = MACHINE, **settings: object) -> tuple[str, int]:
    now = config(**settings)
    made = choose_plan(now, machine, DEPTHWISE, num_samples=60)
    plan = resumed_plan(made, begun, now, machine=machine, then=MACHINE)
    return plan.memory_format, plan.threads


def test_a_run_goes_on_in_the_way_it_began(begun: Plan) -> None:
    assert goes_on(begun) == ("contiguous", 1)


def test_a_run_goes_on_in_as_many_parts_whatever_fits_by_now(begun: Plan) -> None:
    begun = begun.model_copy(update={"accumulation": 3})
    now = config()
    made = choose_plan(now, MACHINE, DEPTHWISE, num_samples=60)
    assert made.accumulation == 1
    assert resumed_plan(made, begun, now, machine=MACHINE, then=MACHINE).accumulation == 3
    now = config(deploy={"accumulation": 2})
    made = choose_plan(now, MACHINE, DEPTHWISE, num_samples=60)
    assert resumed_plan(made, begun, now, machine=MACHINE, then=MACHINE).accumulation == 2


def begun_with(replicas: int, **deploy: object) -> Plan:
    settings = config(deploy={"replicas": replicas, **deploy}, batch=8)
    return choose_plan(settings, MACHINE, DEPTHWISE, num_samples=60)


def resumed_with(begun: Plan, replicas: int, **deploy: object) -> Plan:
    now = config(deploy={"replicas": replicas, **deploy}, batch=8)
    planned = with_clones_of(now, begun, num_replicas=replicas)
    made = choose_plan(planned, MACHINE, DEPTHWISE, num_samples=60)
    return resumed_plan(made, begun, now, machine=MACHINE, then=MACHINE)


@pytest.mark.parametrize("num", [1, 2, 3])
def test_a_run_goes_on_with_its_clones_on_any_number_of_replicas(num: int) -> None:
    begun = begun_with(3).model_copy(update={"threads": 2})
    uneven = [
        clone.model_copy(update={"share": share})
        for clone, share in zip(begun.clones, (4, 3, 1), strict=True)
    ]
    replicas = tuple(Replica(clones=(clone,)) for clone in uneven)
    plan = resumed_with(begun.model_copy(update={"replicas": replicas}), num)
    assert (plan.strategy, plan.threads, len(plan.replicas)) == ("ddp", 2, num)
    assert [clone.share for clone in plan.clones] == [4, 3, 1]


def test_a_run_goes_on_with_other_clones_if_told_or_if_they_are_too_few() -> None:
    begun = begun_with(2)
    assert len(resumed_with(begun, 4).clones) == 4
    assert len(resumed_with(begun, 1, logical_clones=4).clones) == 4
    assert len(resumed_with(begun, 1, strategy="single").clones) == 1
    assert [clone.share for clone in resumed_with(begun, 2, shares=[6, 2]).clones] == [6, 2]


def test_a_run_goes_on_with_as_many_processes_as_it_began_with(
    begun: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = MACHINE.model_copy(update={"numa_nodes": 2})
    monkeypatch.setattr("boxcrew.train.planning.from_settings.probe_machine", lambda: large)
    assert planned_processes(config(), begun) == (1, 0)
    assert planned_processes(config(deploy={"replicas": 3}), begun) == (3, 0)
    assert planned_processes(config()) == (2, 0)


@pytest.fixture
def staged() -> Iterator[RunConfig]:
    with staged_detector.registered():
        yield config(detector={"name": staged_detector.NAME})


def test_a_run_with_stages_goes_on_with_the_processes_of_its_first(
    staged: RunConfig, begun: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of the run is that of its last stage, which may be a solve, by one process."""
    monkeypatch.setattr("boxcrew.train.planning.from_settings.probe_machine", lambda: MACHINE)
    assert planned_processes(staged) == (1, 0)
    assert planned_processes(staged.changed({"deploy": {"replicas": 3}})) == (3, 0)
    two = choose_plan(config(deploy={"replicas": 2}), MACHINE, FULL, num_samples=60)
    for folder, plan in ((tmp_path, begun), (tmp_path / "1-features", two)):
        run = {"config": staged.tree(), "plan": plan.tree()}
        write_checkpoint(folder / "checkpoints", Checkpoint(step=1, tensors={}, state={}, run=run))
    before = plan_before(tmp_path, staged)
    assert planned_processes(staged, before) == (2, 0)
    assert planned_processes(staged.changed({"deploy": {"replicas": 3}}), before) == (3, 0)
    assert plan_before(tmp_path, config()) == begun


def test_a_run_that_is_only_solved_has_one_process(
    staged: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = (Stage(name="ridge", kind="solve"),)
    monkeypatch.setattr(staged_detector.RidgeHeadedConfig, "stages", lambda _: only)
    assert planned_processes(staged.changed({"deploy": {"replicas": 3}})) == (1, 0)


def test_a_run_with_stages_has_no_parameter_servers(
    staged: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxcrew.train.planning.from_settings.probe_machine", lambda: MACHINE)
    deploy = {"strategy": "parameter_server", "replicas": 2}
    path = tmp_path / "plan.json"
    plan = choose_plan(config(deploy=deploy), MACHINE, FULL, num_samples=60)
    path.write_text(json.dumps(plan.tree() | {"task": None}))
    for settings, name in (({"deploy": deploy}, "deploy.strategy="), ({"plan": str(path)}, "plan=")):
        asked = staged.changed(settings)
        for find in (planned_processes, lambda asked: planned_servers(asked, 3)):
            with pytest.raises(UsageError, match=f"{name}.*a run with stages has no") as caught:
                find(asked)
            assert caught.value.advice.startswith(f"leave {name}")


def test_settings_win_over_the_way_a_run_began(begun: Plan) -> None:
    assert goes_on(begun, deploy={"threads": 3}) == ("contiguous", 3)
    assert goes_on(begun, deploy={"memory_format": "channels_last"}) == ("channels_last", 1)


def test_on_another_machine_a_run_is_planned_anew(begun: Plan) -> None:
    assert goes_on(begun, MACHINE.model_copy(update={"cores": 8})) == ("channels_last", 8)
    other = CPU.model_copy(update={"model": "another CPU"})
    assert goes_on(begun, MACHINE.model_copy(update={"devices": (other,)})) == ("channels_last", 4)


def test_a_given_plan_wins_over_the_way_a_run_began(begun: Plan, tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(choose_plan(config(), MACHINE, DEPTHWISE, num_samples=60).tree()))
    assert goes_on(begun, plan=str(path)) == ("channels_last", 4)


def test_who_is_alone_plans_for_one_process_whatever_the_machine_has() -> None:
    """Nodes of a large machine get a replica each only if somebody starts them."""
    large = MACHINE.model_copy(update={"numa_nodes": 2})
    assert len(choose_plan(config(), large, FULL, num_samples=60).replicas) == 2
    alone = Host(name="", machine=large, ranks=(0,))
    assert len(choose_plan(config(), large, FULL, num_samples=60, hosts=(alone,)).replicas) == 1
    both = Host(name="", machine=large, ranks=(0, 1))
    assert len(choose_plan(config(), large, FULL, num_samples=60, hosts=(both,)).replicas) == 2


def test_as_many_processes_are_started_as_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    large = MACHINE.model_copy(update={"numa_nodes": 2})
    monkeypatch.setattr("boxcrew.train.planning.from_settings.probe_machine", lambda: large)
    assert planned_processes(config()) == (2, 0)
    assert planned_processes(config(deploy={"replicas": 1})) == (1, 0)
    assert planned_processes(config(deploy={"strategy": "parameter_server", "replicas": 3})) == (3, 1)


@pytest.mark.parametrize(("asked", "started"), [("1:4", 2), ("3:4", 3), ("1:1", 1)])
def test_of_a_range_as_many_are_started_as_are_planned(
    monkeypatch: pytest.MonkeyPatch, asked: str, started: int
) -> None:
    two_nodes = MACHINE.model_copy(update={"numa_nodes": 2})
    monkeypatch.setattr("boxcrew.train.planning.from_settings.probe_machine", lambda: two_nodes)
    assert planned_processes(config(deploy={"replicas": asked})) == (started, 0)


@pytest.mark.parametrize("text", ["4:1", "0:2", "1:", "a:b"])
def test_a_range_of_replicas_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"deploy\.replicas: .* a range such as 1:4"):
        config(deploy={"replicas": text})
