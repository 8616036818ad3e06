"""Decisions: which training goes on, which is new, and in which order several at once see results."""

from __future__ import annotations

import pytest

from boxcrew.tune.ledger import TrainingStarted, Trial, TrialDrawn
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.scheduler import Decision, Timeline, decide, first_rung


def trial(number: int, *values: float, failure: str | None = None, bracket: int = 0) -> Trial:
    """A trial that has these values at the rungs that it has reached."""
    asked = TrialDrawn(trial=number, params={}, settings={}, rungs=(3, 9, 27), bracket=bracket)
    begun = max(bracket + len(values) - 1, 0)
    by_rung = {bracket + rung: value for rung, value in enumerate(values)}
    return Trial(asked=asked, begun=begun, values=by_rung, failure=failure)


RECIPE = trial(0, 0.5, 0.5, 0.5)


def test_the_recipe_is_trained_to_the_end_first(record: StudyRecord) -> None:
    assert decide([], record, running=False) == Decision(kind="new", trial=0, rung=0)
    assert decide([trial(0, 0.1)], record, running=False) == Decision(kind="go_on", trial=0, rung=1)
    assert decide([trial(0, 0.1, 0.1)], record, running=False) == Decision(kind="go_on", trial=0, rung=2)
    assert decide([RECIPE], record, running=False) == Decision(kind="new", trial=1, rung=0)


def test_one_of_three_goes_on_and_the_longest_first(record: StudyRecord) -> None:
    two = [RECIPE, trial(1, 0.4), trial(2, 0.6)]
    assert decide(two, record, running=False) == Decision(kind="go_on", trial=2, rung=1)
    assert decide([RECIPE, trial(1, 0.4), trial(2, 0.6, 0.7)], record, running=False).kind == "new"
    # Trial 2 is the best of three at the second rung, and goes on before any at the first.
    three = [RECIPE, trial(1, 0.4, 0.4), trial(2, 0.6, 0.7), *(trial(n, 0.9) for n in (3, 4, 5))]
    assert decide(three, record, running=False) == Decision(kind="go_on", trial=2, rung=2)
    lower = record.model_copy(update={"higher_is_better": False})
    assert decide(two, lower, running=False) == Decision(kind="go_on", trial=1, rung=1)


def test_failed_trials_do_not_go_on(record: StudyRecord) -> None:
    failed = [RECIPE, trial(1, 0.9, failure="loss is nan"), trial(2, failure="x"), trial(3, 0.1)]
    assert decide(failed, record, running=False) == Decision(kind="new", trial=4, rung=0)


def test_the_end(record: StudyRecord) -> None:
    limited = record.model_copy(update={"trials": 1})
    assert decide([RECIPE], limited, running=True).kind == "wait"
    assert decide([RECIPE], limited, running=False).kind == "done"


def test_a_trial_that_was_drawn_before_a_kill_is_begun(record: StudyRecord) -> None:
    drawn = trial(1)
    drawn.begun = -1
    assert decide([RECIPE, drawn], record, running=False) == Decision(kind="go_on", trial=1, rung=0)


def test_the_median_stops_half(record: StudyRecord) -> None:
    median = record.model_copy(update={"pruner": "median"})
    rivals = [trial(n, 0.1 * n, 0.1 * n, 0.1 * n) for n in range(5)]
    assert decide([*rivals, trial(5, 0.19)], median, running=False).kind == "new"
    assert decide([*rivals, trial(5, 0.21)], median, running=False) == Decision(kind="go_on", trial=5, rung=1)


def test_hyperband_begins_some_trials_at_later_rungs(record: StudyRecord) -> None:
    hyperband = record.model_copy(update={"pruner": "hyperband"})
    first = [first_rung(hyperband, number) for number in range(14)]
    assert first == [0, *[0] * 9, *[1] * 3, 2]
    rivals = [RECIPE, trial(1, 0.9), *(trial(n, 0.1 * n, bracket=1) for n in (2, 3, 4))]
    assert decide(rivals, hyperband, running=False) == Decision(kind="go_on", trial=4, rung=2)


def test_without_pruning_a_trial_is_trained_to_the_end(record: StudyRecord) -> None:
    assert first_rung(record.model_copy(update={"pruner": "none"}), 3) == 2


@pytest.mark.parametrize(
    ("ends", "slot", "time"), [([], 0, 0.0), ([5], 1, 0.0), ([5, 3], 1, 3.0), ([5, 5], 0, 5.0)]
)
def test_the_slot_that_is_planned_to_be_free_first(ends: list[float], slot: int, time: float) -> None:
    jobs = [
        TrainingStarted(job=i, trial=i, rung=0, slot=i, begins=0.0, ends=float(end))
        for i, end in enumerate(ends)
    ]
    assert Timeline(jobs=jobs, workers=2).next_slot() == (slot, time)
