"""The planner of a run, and what the first steps show about its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.hardware.assumed import assumed_machine
from boxcrew.hardware.machine import Machine
from boxcrew.plan.observed import Observed, ObservedRatio, load_ratios
from boxcrew.plan.plan import Plan
from boxcrew.train.config import RunConfig
from boxcrew.train.planning import planner as planners
from boxcrew.train.planning.planner import FirstSteps, Planner
from tests.helpers.workloads import MIB, a_workload

CPU = assumed_machine("4 cores, 16GB")
GPU = assumed_machine("24GB-gpu@20TFLOPS, 8 cores, 32GB")
SLOW = a_workload(inputs={"seconds": 0.05, "cached_seconds": 0.05, "image_bytes": MIB})


def planner(machine: Machine = CPU, *, libraries: int = 500 * MIB, **settings: object) -> Planner:
    return Planner(
        config=RunConfig.of({"steps": 100, "batch": 8, **settings}),
        machine=machine,
        workload=a_workload(),
        num_samples=100,
        observed=Observed(libraries=libraries),
    )


def as_predicted(plan: Plan, *, slower: float = 1.0, larger: float = 1.0) -> FirstSteps:
    assert plan.predicted is not None
    memory = plan.predicted.on(plan.clones[0].device)
    first, later = plan.predicted.at_first.likely, plan.predicted.step.likely
    return FirstSteps(
        step_seconds=slower * first,
        wait_seconds=slower * (first - later),  # for images that are not kept yet
        peak_bytes=int(larger * memory.measurable),
    )


@pytest.mark.parametrize("machine", [CPU, GPU])
@pytest.mark.parametrize(
    ("slower", "larger", "expected"),
    [(1.0, 1.0, True), (1.0, 1.01, True), (9.0, 1.0, False), (0.1, 1.0, False), (1.0, 2.0, False)],
)
def test_what_is_outside_the_interval_is_not_as_expected(
    machine: Machine, slower: float, larger: float, expected: bool
) -> None:
    usual = planner(machine)
    plan = usual.plan()
    text, as_expected = usual.compare(plan, as_predicted(plan, slower=slower, larger=larger))
    assert as_expected == expected
    assert f"({slower - 1:+.0%})" in text
    assert text.startswith("predicted ")
    assert "; measured " in text


def test_where_memory_cannot_be_measured_only_time_is_judged() -> None:
    usual = planner()
    plan = usual.plan()
    assert plan.predicted is not None
    first = FirstSteps(step_seconds=plan.predicted.step.likely, wait_seconds=0.0, peak_bytes=None)
    text, as_expected = usual.compare(plan, first)
    assert as_expected
    assert "GiB" not in text
    assert usual.replanned(plan, first).predicted is not None


def test_a_new_plan_expects_what_was_measured_and_computes_as_before() -> None:
    usual = planner()
    plan = usual.plan()
    first = as_predicted(plan, slower=3.0, larger=1.4)
    anew = usual.replanned(plan, first)
    assert anew.predicted is not None
    assert anew.predicted.step.likely == pytest.approx(first.step_seconds - first.wait_seconds, rel=0.05)
    assert first.peak_bytes is not None
    assert anew.predicted.on("cpu").measurable == pytest.approx(first.peak_bytes, rel=0.1)
    may_change = {"predicted", "loader_workers", "reasons"}
    assert anew.tree().keys() == plan.tree().keys()
    for name, value in plan.tree().items():
        assert name in may_change or anew.tree()[name] == value


def test_who_turns_out_to_wait_for_images_gets_more_workers() -> None:
    slow = Planner(
        config=RunConfig.of({"steps": 100, "batch": 8, "loader": {"cache": 0}}),
        machine=assumed_machine("24GB-gpu@1TFLOPS, 8 cores, 32GB"),
        workload=SLOW,
        num_samples=100,
        observed=Observed(libraries=500 * MIB),
    )
    plan = slow.plan()
    first = FirstSteps(step_seconds=0.1, wait_seconds=0.09, peak_bytes=None)  # the device is that much faster
    assert slow.replanned(plan, first).loader_workers > plan.loader_workers


@pytest.mark.parametrize("machine", [CPU, GPU])
@pytest.mark.parametrize("slower", [0.5, 2.0])
def test_the_next_plan_knows_how_far_off_this_one_was(machine: Machine, slower: float) -> None:
    usual = planner(machine, seed=1, libraries=300 * MIB)
    plan = usual.plan()
    first = as_predicted(plan, slower=slower, larger=1.2)
    usual.store_ratio(plan, first)
    ratios = load_ratios(machine, planners._key(usual.config))
    assert [(r.device, r.memory_format) for r in ratios] == [(plan.clones[0].device, plan.memory_format)]
    again = planner(machine, seed=1)
    again = Planner(
        config=again.config,
        machine=machine,
        workload=again.workload,
        num_samples=100,
        observed=Observed(libraries=300 * MIB, ratios=ratios),
    )
    predicted = again.plan().predicted
    assert predicted is not None
    assert predicted.step.likely == pytest.approx(first.step_seconds - first.wait_seconds, rel=0.1)
    assert first.peak_bytes is not None
    assert predicted.on(plan.clones[0].device).measurable == pytest.approx(first.peak_bytes, rel=0.05)


def test_nothing_is_learned_while_others_are_at_work() -> None:
    busy = CPU.model_copy(update={"busy_cores": 2.0, "cores": 3.5})
    usual = planner(busy)
    plan = usual.plan()
    usual.store_ratio(plan, as_predicted(plan, slower=3.0))
    assert load_ratios(busy, planners._key(usual.config)) == ()


def test_samples_that_were_found_not_to_fit_are_not_planned() -> None:
    usual = planner()
    assert usual.plan().accumulation == 1
    observed = usual.observed.model_copy(update={"oom_samples": 4})
    less = Planner(
        config=usual.config,
        machine=usual.machine,
        workload=usual.workload,
        num_samples=100,
        observed=observed,
    )
    assert max(map(max, less.plan().split(8))) < 4


def test_of_an_edited_plan_it_is_worked_out_anew_what_it_takes(tmp_path: Path) -> None:
    usual = planner()
    plan = usual.plan()
    file = tmp_path / "plan.json"
    file.write_text(plan.model_copy(update={"accumulation": 4}).model_dump_json())
    edited = planner(plan=str(file)).plan()
    assert edited.accumulation == 4
    assert edited.predicted is not None
    assert plan.predicted is not None
    assert edited.predicted.on("cpu").needed < plan.predicted.on("cpu").needed


def test_a_residual_of_another_precision_is_not_used() -> None:
    known = ObservedRatio(
        device="cpu", memory_format="contiguous", precision="bf16", seconds=9.0, num_bytes=1.0
    )
    assert Observed(ratios=(known,)).ratio("cpu", "contiguous", "fp32") is None


def test_of_a_plan_with_another_batch_the_images_are_its_own(tmp_path: Path) -> None:
    """A plan in `plan=` is used unchanged."""
    larger = planner(batch=16).plan()
    file = tmp_path / "plan.json"
    file.write_text(larger.model_dump_json())
    edited = planner(plan=str(file)).plan()
    assert edited.batch == 16
    assert edited.predicted is not None
    assert larger.predicted is not None
    assert edited.predicted.images_per_second == pytest.approx(larger.predicted.images_per_second)
