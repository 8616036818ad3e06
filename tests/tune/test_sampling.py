"""Drawing settings: the same from the same results, whatever happened in between."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.tune.choose import choose_space
from boxcrew.tune.importance import importance
from boxcrew.tune.ledger import Ledger, Trial, TrialDrawn
from boxcrew.tune.record import Sampler, StudyRecord
from boxcrew.tune.sampling import STARTUP, draw, grid


def drawn(record: StudyRecord, num: int) -> list[Trial]:
    """Trials one after the other; their values depend on their settings."""
    trials: list[Trial] = []
    for number in range(num):
        params = draw(record, trials, number)
        assert params is not None
        settings = record.space.settings(params)
        asked = TrialDrawn(trial=number, params=params, settings=settings, rungs=(3, 9, 27), bracket=0)
        value = 1.0 - float(settings["net.dropout"])
        trials.append(Trial(asked=asked, begun=0, values={0: value}))
    return trials


def test_trial_0_has_the_settings_of_the_recipe(record: StudyRecord) -> None:
    assert draw(record, [], 0) == {"optim.rate": 1e-3, "net.dropout": 0.2}


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_what_is_drawn_depends_on_the_results_alone(record: StudyRecord, sampler: Sampler) -> None:
    study = record.model_copy(update={"sampler": sampler})
    trials = drawn(study, STARTUP + 4)
    for number in (1, STARTUP + 2):  # as after a stop, when nothing of the sampler is left
        assert draw(study, trials[:number], number) == trials[number].asked.params
    other = study.model_copy(update={"seed": 1})
    assert draw(other, trials[:3], 3) != trials[3].asked.params


def test_cma_draws_its_own_state_again(record: StudyRecord) -> None:
    pytest.importorskip("cmaes")
    study = record.model_copy(update={"sampler": "cma", "pruner": "none", "rungs": (27,)})
    trials: list[Trial] = []
    for number in range(STARTUP + 14):
        params = draw(study, trials, number)
        assert params is not None
        asked = TrialDrawn(trial=number, params=params, settings={}, rungs=(27,), bracket=0)
        trials.append(Trial(asked=asked, begun=0, values={0: 1.0 - params["net.dropout"]}))
    dropouts = [trial.asked.params["net.dropout"] for trial in trials]
    assert sum(dropouts[-7:]) < sum(dropouts[:7])
    assert draw(study, trials[:-1], len(trials) - 1) == trials[-1].asked.params


def test_the_sampler_learns(record: StudyRecord) -> None:
    trials = drawn(record, STARTUP + 12)
    dropouts = [trial.asked.params["net.dropout"] for trial in trials]
    assert sum(dropouts[STARTUP:]) / 12 < sum(dropouts[:STARTUP]) / STARTUP


def test_a_grid_has_each_point_once(record: StudyRecord) -> None:
    base = record.base_config
    search = {"optim": {"name": "sgd,momentum", "momentum": "0.5,0.9"}, "net": {"dropout": "0..0.4:0.2"}}
    space = choose_space(search, base, Mock())
    study = record.model_copy(update={"space": space, "sampler": "grid"})
    points = grid(study)
    assert len(points) == 3 * (1 + 2)
    assert {tuple(sorted(point.items())) for point in points} == {
        tuple(sorted(point.items())) for point in grid(study.model_copy(update={"seed": 3}))
    }
    trials: list[Trial] = []
    for number in range(1, len(points) + 1):
        params = draw(study, trials, number)
        assert params is not None
        trials.append(
            Trial(asked=TrialDrawn(trial=number, params=params, settings={}, rungs=(1,), bracket=0), begun=0)
        )
    assert draw(study, trials, 99) is None
    with pytest.raises(UsageError, match="a grid needs values"):
        grid(record)


def test_a_small_space_ends(record: StudyRecord) -> None:
    space = choose_space({"net": {"batch_norm": "true,false"}}, record.base_config, Mock())
    study = record.model_copy(update={"space": space, "sampler": "tpe"})
    trials: list[Trial] = []
    for number, params in enumerate(({"net.batch_norm": False}, {"net.batch_norm": True})):
        assert draw(study, trials, number) == params
        asked = TrialDrawn(trial=number, params=params, settings=params, rungs=(1,), bracket=0)
        trials.append(Trial(asked=asked, begun=0, values={0: 0.5}))
    assert draw(study, trials, 2) is None


def test_the_setting_that_decides_is_the_important_one(record: StudyRecord) -> None:
    random = record.model_copy(update={"sampler": "random"})
    ledger = Ledger(folder=Path(), trials=drawn(random, 30))
    found = importance(random, ledger)
    assert found is not None
    assert next(iter(found.shares)) == "net.dropout"
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert importance(random, Ledger(folder=Path(), trials=ledger.trials[:9])) is None
