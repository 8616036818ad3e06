"""The verification of the plan measures the first steps for long enough, and once."""

from __future__ import annotations

from typing import Any

import pytest

from boxcrew.train.loop.hooks.verification import ENOUGH_STEPS, WARM_UP_STEPS, Verification
from boxcrew.train.loop.schedule import Progress
from boxcrew.train.loop.trainer import StepReport
from boxcrew.train.planning.planner import FirstSteps


class Deployment:
    class Plan:
        predicted = None
        num_processes = 1

    class Clone:
        device = "cpu"

    plan = Plan()
    own_clones = (Clone(),)


class Task:
    def __init__(self, cycle: int) -> None:
        self.cycle = cycle


class Trainer:
    deployment = Deployment()

    def __init__(self, cycle: int) -> None:
        self.task = Task(cycle)


def report(seconds: float, *, wait: float = 0.0, fault: str | None = None) -> StepReport:
    return StepReport(
        progress=Progress(step=1, epoch=0.1, fraction=0.1),
        loss=1.0,
        terms={},
        rate=0.1,
        gradient_norm=1.0,
        seconds=seconds,
        data_wait=wait,
        num_samples=4,
        skipped=(),
        fault=fault,
    )


@pytest.fixture
def measured() -> list[FirstSteps]:
    return []


@pytest.fixture
def watch(measured: list[FirstSteps]) -> Verification:
    return Verification(lambda _, result: measured.append(result))


def after(watch: Verification, *reports: StepReport, cycle: int = 1) -> None:
    trainer: Any = Trainer(cycle)
    for step in reports:
        watch.after_step(trainer, step)


def test_the_first_steps_are_left_out_and_the_rest_measured_once(
    watch: Verification, measured: list[FirstSteps]
) -> None:
    after(watch, *[report(9.0)] * WARM_UP_STEPS, *[report(0.5, wait=0.1)] * (ENOUGH_STEPS - 1))
    assert not measured
    after(watch, report(0.5, wait=0.1), report(7.0))
    assert [(m.step_seconds, m.wait_seconds) for m in measured] == [(0.5, 0.1)]
    assert measured[0].peak_bytes is not None
    assert measured[0].peak_bytes > 1 << 20
    report_json = watch.to_json()
    assert report_json is not None
    assert report_json["measured"]["mean_step_seconds"] == pytest.approx(0.5)


def test_of_steps_with_other_phases_the_mean_over_all_of_them_counts(
    watch: Verification, measured: list[FirstSteps]
) -> None:
    """One of every four steps takes five times as long; a plan predicts the mean."""
    steps = [report(1.0), report(1.0), report(1.0), report(5.0)]
    after(watch, *[report(9.0)] * WARM_UP_STEPS, *steps, *steps, *steps, cycle=4)
    assert [m.step_seconds for m in measured] == [2.0]


def test_of_long_steps_fewer_are_enough(watch: Verification, measured: list[FirstSteps]) -> None:
    after(watch, *[report(4.0)] * (WARM_UP_STEPS + 3))
    assert [m.step_seconds for m in measured] == [4.0]


def test_a_short_run_is_measured_at_its_end_if_it_has_enough_steps(
    watch: Verification, measured: list[FirstSteps]
) -> None:
    trainer: Any = Trainer(cycle=1)
    after(watch, *[report(0.1)] * (WARM_UP_STEPS + 2))
    watch.end(trainer)
    assert not measured
    assert watch.to_json() is None
    after(watch, report(0.1))
    watch.end(trainer)
    assert len(measured) == 1


def test_a_step_that_failed_tells_nothing(watch: Verification, measured: list[FirstSteps]) -> None:
    after(watch, *[report(0.1)] * WARM_UP_STEPS, *[report(5.0, fault="not finite")] * 20)
    assert not measured
