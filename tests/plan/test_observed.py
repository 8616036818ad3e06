"""The errors of earlier predictions are stored and correct the next ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boxcrew.core.workload import Workload
from boxcrew.hardware.assumed import assumed_machine
from boxcrew.plan.observed import Observed, ObservedRatio, load_ratios, store_ratio
from boxcrew.plan.plan import Plan
from boxcrew.plan.request import PlanRequest
from boxcrew.plan.search import make_plan
from tests.helpers.workloads import MIB, a_workload

HERE = assumed_machine("8 cores, 32GB")
TASK = "detection by ssdlite"
LIBRARIES = 500 * MIB


def ratio(device: str = "cpu", *, seconds: float = 1.5, num_bytes: float = 1.1) -> ObservedRatio:
    return ObservedRatio(device=device, memory_format="contiguous", seconds=seconds, num_bytes=num_bytes)


# Keeping them.


def test_what_is_remembered_is_recalled(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet" / "there"
    assert load_ratios(HERE, TASK, folder) == ()
    store_ratio(HERE, TASK, ratio(), folder)
    store_ratio(HERE, TASK, ratio("cuda:0"), folder)
    assert load_ratios(HERE, TASK, folder) == (ratio(), ratio("cuda:0"))
    assert load_ratios(HERE, "detection by ssd", folder) == ()


def test_the_last_of_each_way_and_task_is_kept(tmp_path: Path) -> None:
    other = ObservedRatio(device="cpu", memory_format="channels_last", seconds=0.7, num_bytes=0.9)
    for each in (ratio(), other, ratio(seconds=2.5)):
        store_ratio(HERE, TASK, each, tmp_path)
    store_ratio(HERE, "detection by ssd", ratio(seconds=9), tmp_path)
    assert set(load_ratios(HERE, TASK, tmp_path)) == {other, ratio(seconds=2.5)}
    assert load_ratios(HERE, "detection by ssd", tmp_path) == (ratio(seconds=9),)


def test_those_of_another_machine_are_not_used(tmp_path: Path) -> None:
    store_ratio(HERE, TASK, ratio(), tmp_path)
    assert load_ratios(assumed_machine("4 cores, 32GB"), TASK, tmp_path) == ()
    assert load_ratios(assumed_machine("24GB-gpu, 8 cores, 32GB"), TASK, tmp_path) == ()
    busy = HERE.model_copy(update={"busy_cores": 3.0})  # the same, at another moment
    assert load_ratios(busy, TASK, tmp_path) == (ratio(),)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"detection by ssdl', id="cut off"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"[1, 2]", id="a list"),
        pytest.param(b'{"detection by ssdlite": null}', id="nothing"),
        pytest.param(b'{"detection by ssdlite": 3}', id="a number"),
        pytest.param(b'{"detection by ssdlite": [3]}', id="numbers"),
        pytest.param(b'{"detection by ssdlite": {"device": "cpu"}}', id="not a list"),
        pytest.param(b'{"detection by ssdlite": [{"device": "cpu"}]}', id="half of one"),
        pytest.param(
            b'{"detection by ssdlite": [{"device": "cpu", "memory_format": "contiguous", "seconds": NaN, '
            b'"num_bytes": 1}]}',
            id="not a number",
        ),
        pytest.param(
            b'{"detection by ssdlite": [{"device": "cpu", "memory_format": "contiguous", "seconds": -1, '
            b'"num_bytes": 1}]}',
            id="less than nothing",
        ),
    ],
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    store_ratio(HERE, TASK, ratio(), tmp_path)
    [file] = tmp_path.iterdir()
    file.write_bytes(content)
    assert load_ratios(HERE, TASK, tmp_path) == ()
    store_ratio(HERE, TASK, ratio(), tmp_path)
    assert load_ratios(HERE, TASK, tmp_path) == (ratio(),)


def test_what_is_known_of_other_tasks_outlives_a_damaged_one(tmp_path: Path) -> None:
    store_ratio(HERE, "detection by ssd", ratio(), tmp_path)
    [file] = tmp_path.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {TASK: [{"device": 3}]}))
    store_ratio(HERE, TASK, ratio(), tmp_path)
    assert load_ratios(HERE, "detection by ssd", tmp_path) == (ratio(),)


def test_where_nothing_can_be_kept_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    for folder in (in_the_way, in_the_way / "below"):
        store_ratio(HERE, TASK, ratio(), folder)
        assert load_ratios(HERE, TASK, folder) == ()

    def refuse(path: Path, text: str) -> None:  # as a read-only folder does, but root may write anywhere
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("boxcrew.core.cache.write_text", refuse)
    store_ratio(HERE, TASK, ratio(), tmp_path)
    assert load_ratios(HERE, TASK, tmp_path) == ()


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxcrew.plan.observed.cache_folder", lambda _: None)
    store_ratio(HERE, TASK, ratio())
    assert load_ratios(HERE, TASK) == ()


# Using them.


def planned(machine: str, workload: Workload, *ratios: ObservedRatio) -> Plan:
    request = PlanRequest(batch=16, num_samples=1000, steps=1000, cache=0)
    return make_plan(
        assumed_machine(machine), workload, request, Observed(libraries=LIBRARIES, ratios=ratios)
    )


def measurable(plan: Plan) -> tuple[float, int]:
    """Seconds of a step and bytes of the model on the first device, which a run measures."""
    assert plan.predicted is not None
    memory = plan.predicted.on(plan.clones[0].device)
    return plan.predicted.step.likely, memory.process - memory.libraries


@pytest.mark.parametrize("factor", [0.6, 1.5, 3.0])
@pytest.mark.parametrize(
    ("machine", "mebibytes"),
    [
        pytest.param("8 cores, 32GB", 20, id="CPU"),
        pytest.param("8 cores, 64GB", 1000, id="CPU, long updates"),
        pytest.param("24GB-gpu@20TFLOPS, 8 cores, 64GB", 20, id="GPU"),
    ],
)
def test_the_next_prediction_is_what_was_measured(machine: str, mebibytes: int, factor: float) -> None:
    workload = a_workload(parameters=mebibytes * MIB, gradients=mebibytes * MIB, inputs=None)
    first = planned(machine, workload)
    seconds, _ = measurable(first)
    known = ObservedRatio(
        device=first.clones[0].device,
        memory_format=first.memory_format,
        precision=first.precision,
        seconds=factor,
        num_bytes=1,
    )
    second = planned(machine, workload, known)
    assert measurable(second)[0] == pytest.approx(factor * seconds, rel=0.01)
    assert second.predicted is not None
    assert second.predicted.basis == "earlier runs on this machine"
    assert factor * seconds in second.predicted.step


@pytest.mark.parametrize(
    ("machine", "factor"),
    [
        ("8 cores, 32GB", 0.8),
        ("8 cores, 32GB", 1.5),
        ("24GB-gpu@20TFLOPS, 8 cores, 64GB", 1.2),  # never less than its tensors hold
        ("24GB-gpu@20TFLOPS, 8 cores, 64GB", 1.5),
    ],
)
def test_the_next_prediction_of_memory_is_what_was_measured(machine: str, factor: float) -> None:
    workload = a_workload(inputs=None)
    first = planned(machine, workload)
    known = ObservedRatio(
        device=first.clones[0].device,
        memory_format=first.memory_format,
        precision=first.precision,
        seconds=1,
        num_bytes=factor,
    )
    _, num_bytes = measurable(planned(machine, workload, known))
    assert num_bytes == pytest.approx(factor * measurable(first)[1], rel=0.01)


def test_what_was_off_on_another_device_changes_nothing() -> None:
    machine = "24GB-gpu@20TFLOPS, 8 cores, 64GB"
    plan, workload = planned(machine, a_workload()), a_workload()
    assert planned(machine, workload, ratio(), ratio("cuda:1")) == plan


def test_what_a_tiny_run_was_off_by_does_not_forbid_a_large_one() -> None:
    """Libraries take many times what a small network does, but do not grow with the samples."""
    usual = planned("8 cores, 32GB", a_workload())
    off = planned("8 cores, 32GB", a_workload(), ratio(num_bytes=11.5))
    assert (off.accumulation, off.recompute) == (usual.accumulation, usual.recompute)
