"""What trials cost with other settings, and what there is time for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from boxcrew.api import run_config
from boxcrew.hardware.probe import probe_machine
from boxcrew.tune.budget import REPEATS_SHARE, STARTING, Budget, TrainingPart, fitted, fitted_with_end
from boxcrew.tune.cost import changes_cost, relative_cost, step_cost
from boxcrew.tune.ledger import Ledger, TrainingEnded, TrainingStarted, TrialDrawn
from boxcrew.tune.record import StudyRecord
from tests.helpers.tiny import BACKBONE


def test_larger_inputs_and_batches_cost_more_and_always_the_same(tiny_set: Path) -> None:
    detector = {"name": "ssdlite", "backbone": BACKBONE, "size": 96}
    words = {"data": str(tiny_set), "detector": detector, "init": "scratch", "trainable": ["*"], "batch": 4}
    base, machine = run_config("starter", words), probe_machine().model_copy(update={"busy_cores": 0.0})
    cost = step_cost(base, machine)
    assert step_cost(base, machine) == cost
    assert relative_cost(base, cost, machine) == 1.0
    assert relative_cost(base.changed({"batch": 8}), cost, machine) == pytest.approx(2.0, rel=0.2)
    assert relative_cost(base.changed({"detector": {"size": 192}}), cost, machine) > 2.0
    assert relative_cost(base.changed({"data": "nowhere"}), cost, machine) == 1.0  # the trial will say why


def test_which_settings_change_the_cost() -> None:
    assert not changes_cost(["optim.rate", "transforms.mosaic", "schedule.name"])
    assert changes_cost(["optim.rate", "detector.size"])
    assert changes_cost(["batch"])


def test_costlier_steps_are_fewer(record: StudyRecord) -> None:
    assert record.rungs_for(1.0) == (3, 9, 27)
    assert record.rungs_for(2.0) == (2, 4, 14)
    assert record.rungs_for(100.0) == (1, 2, 3)  # each rung is a step of its own


def budget(*, time: float | None, now: float = 0.0, done: float = 27.0) -> Budget:
    """Of a study whose steps take a second, in trainings of 27 of them."""
    return Budget(
        time=time, now=now, step_seconds=1.0, starting=1.0, workers=1, rungs=(3, 9, 27), steps_done=done
    )


def part(steps: float, *, completes: bool = False) -> TrainingPart:
    return TrainingPart(steps=steps, completes=completes)


def test_the_time_for_the_last_promotion_and_the_repeats_is_kept_back() -> None:
    assert budget(time=None).allows(part(10**6))
    short = budget(time=100.0)  # too short for two repeats of 27 steps and 3 evaluations
    assert not short.allows_repeats()
    assert short.allows(part(98 - 1 - 19 - 2))
    assert not short.allows(part(98 - 1 - 19 - 2 + 1))  # with the last promotion and the test it takes longer
    assert short.allows_promotion(part(98 - 1 - 2))
    long = budget(time=1000.0)
    assert long.allows_repeats()
    assert long.allows(part(980 - 1 - 19 - 60 - 2))
    assert not long.allows(part(980 - 1 - 19 - 60 - 2 + 1))
    assert not budget(time=1000.0, now=950.0).allows_repeats()


def test_without_a_time_the_repeats_are_a_small_part_of_the_study() -> None:
    assert not budget(time=None, done=54 / REPEATS_SHARE - 1).allows_repeats()
    assert budget(time=None, done=54 / REPEATS_SHARE).allows_repeats()


def test_what_trainings_take_is_learned_from_those_that_ended(record: StudyRecord, tmp_path: Path) -> None:
    study = record.model_copy(update={"time": 1000.0, "step_seconds": 5.0})
    ledger = Ledger(folder=tmp_path)
    before = Budget.of(study, ledger, 0.0)
    assert (before.step_seconds, before.steps_done) == (5.0, 0.0)
    ledger.add(TrialDrawn(trial=0, params={}, settings={}, rungs=(3, 9, 27), bracket=0))
    for job, (begins, ends) in enumerate(((0, 3), (3, 9))):
        ledger.add(
            TrainingStarted(job=job, trial=0, rung=job, slot=0, begins=float(begins), ends=float(ends))
        )
        ledger.add(TrainingEnded(job=job, value=0.5, seconds=2.0 * (ends - begins) + 1.5, at=40.0))
    after = Budget.of(study, ledger, 40.0)
    assert (after.step_seconds, after.starting, after.steps_done) == (2.0, 1.5, 9.0)
    assert (after.repeats_left, after.workers) == (2, 1)


def test_the_time_of_a_step_and_that_of_an_evaluation_are_told_apart() -> None:
    def line(steps: float) -> tuple[float, float]:
        return steps, 30.0 + 0.5 * steps  # an evaluation takes as long as sixty steps

    assert fitted([line(3), line(6), line(18), line(3)], planned=9.0) == (0.5, 30.0)
    disturbed = [line(3), line(3), line(6), line(6), line(18), line(18), (3.0, 300.0)]
    assert fitted(disturbed, planned=9.0) == pytest.approx((0.5, 30.0), rel=0.1)
    assert fitted([line(10), line(10)], planned=1.0) == (1.0, 25.0)
    assert fitted([line(10)], planned=100.0) == (3.5, 0.0)  # no step took longer than its training
    assert fitted([], planned=1.0) == (1.0, STARTING)


def test_the_time_of_closed_forms_is_that_of_whole_trainings(record: StudyRecord) -> None:
    staged = record.model_copy(update={"step_seconds": 1.0, "solve_seconds": 40.0})
    paused = [(3.0, 5.0), (6.0, 8.0)]  # a second for each step, and two besides
    assert fitted_with_end([], [], staged) == (1.0, STARTING, 40.0)
    assert fitted_with_end(paused, [], staged) == (1.0, 2.0, 40.0)
    assert fitted_with_end(paused, [(18.0, 70.0)], staged) == (1.0, 2.0, 50.0)
    assert fitted_with_end([], [(27.0, 70.0), (27.0, 70.0)], staged) == (1.0, 3.0, 40.0)
    solved = replace(budget(time=200.0), solving=50.0)
    assert solved.allows_promotion(part(196 - 1 - 2 - 50, completes=True))
    assert not solved.allows_promotion(part(196 - 1 - 2 - 49, completes=True))
    assert solved.allows_promotion(part(196 - 1 - 2))
