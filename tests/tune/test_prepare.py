"""The decisions at the start of a study: lengths, rungs, sampler and pruner."""

from __future__ import annotations

import pytest

from boxcrew.tune.prepare import TrialCost, _pruner, _rungs, _sampler
from boxcrew.tune.settings import TuneConfig


def cost(*, steps: int = 90, seconds: float | None = 1.0, trainings: float | None = None) -> TrialCost:
    return TrialCost(steps=steps, step_seconds=seconds, trainings=trainings)


@pytest.mark.parametrize(
    ("cost", "rungs"),
    [
        (cost(), (10, 30, 90)),
        (cost(seconds=0.4), (30, 90)),  # ten steps take less than it is worth
        (cost(seconds=None), (10, 30, 90)),
        (cost(steps=2, seconds=60.0), (1, 2)),
    ],
)
def test_rungs(cost: TrialCost, rungs: tuple[int, ...]) -> None:
    assert _rungs(cost, "halving", is_chosen=False) == rungs
    assert _rungs(cost, "none", is_chosen=False) == (cost.steps,)


def test_a_pruner_that_was_chosen_has_all_rungs() -> None:
    assert _rungs(cost(seconds=0.01), "halving", is_chosen=True) == (10, 30, 90)


def test_the_pruner_and_the_sampler_suit_the_budget() -> None:
    config = TuneConfig(time=3600.0)
    assert _pruner(config, cost()) == "halving"
    assert _pruner(config, cost(seconds=0.1)) == "none"  # nine seconds are not worth a pause
    assert _pruner(TuneConfig(time=3600.0, sampler="grid"), cost()) == "none"
    assert _pruner(TuneConfig(time=3600.0, pruner="median"), cost(seconds=0.1)) == "median"
    assert _sampler(config, cost(trainings=6.0), "halving") == "tpe"  # about 23 trials
    assert _sampler(config, cost(trainings=6.0), "none") == "random"
    assert _sampler(TuneConfig(trials=8), cost(), "none") == "random"
    assert _sampler(TuneConfig(trials=40), cost(trainings=40.0), "none") == "tpe"
    assert _sampler(TuneConfig(trials=8, sampler="tpe"), cost(), "none") == "tpe"
