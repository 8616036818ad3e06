"""The work of a training: its settings, its device, and the step that it pauses after."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.tune.ledger import Ledger, TrainingStarted, TrialDrawn
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.runner import Interrupted, Runner
from boxcrew.tune.scheduler import Decision

SETTINGS: tuple[dict[str, float], ...] = ({}, {"optim.rate": 0.5})


def runner(study: StudyRecord, folder: Path) -> Runner:
    """A study with trial 0 and one more, of which nothing is trained."""
    ledger = Ledger(folder=folder)
    for number, settings in enumerate(SETTINGS):
        ledger.add(TrialDrawn(trial=number, params={}, settings=settings, rungs=(3, 9, 27), bracket=0))
    return Runner(study=study, folder=folder, ledger=ledger, screen=Screen())


def job(trial: int, rung: int, *, slot: int = 0, repeat: int | None = None) -> TrainingStarted:
    return TrainingStarted(job=0, trial=trial, rung=rung, slot=slot, repeat=repeat, begins=0.0, ends=1.0)


def test_a_trial_pauses_at_its_rung_with_the_schedule_of_a_whole_training(
    record: StudyRecord, tmp_path: Path
) -> None:
    study = runner(record, tmp_path)
    first, last = (study.work(job(1, rung)) for rung in (0, 2))
    assert (first.pause_at, last.pause_at) == (3, None)
    assert first.config == last.config
    config = RunConfig.of(first.config)
    assert (config.steps, config.optim.rate, config.seed) == (27, 0.5, 0)
    assert config.evaluation.at == (3 / 27, 9 / 27, 1.0)
    assert first.folder == tmp_path / "trials" / "0001"


def test_a_repeat_is_the_recipe_with_another_seed(record: StudyRecord, tmp_path: Path) -> None:
    work = runner(record, tmp_path).work(job(0, 2, repeat=2))
    assert (work.folder, work.config["seed"]) == (tmp_path / "repeats" / "2", 2)


def test_trainings_at_once_share_out_the_accelerators(record: StudyRecord, tmp_path: Path) -> None:
    study = record.model_copy(update={"devices": ("cuda:0", "cuda:1"), "workers": 3})
    sharing = runner(study, tmp_path)
    works = [sharing.work(job(0, 0, slot=slot)) for slot in range(3)]
    assert [work.config["device"] for work in works] == ["cuda:0", "cuda:1", "cuda:0"]
    assert runner(record, tmp_path).work(job(0, 0)).config["device"] == "auto"


def test_a_signal_that_came_while_settings_were_drawn_begins_nothing(
    record: StudyRecord, tmp_path: Path
) -> None:
    study = runner(record, tmp_path)
    study._stop(signal.SIGINT, None)
    with pytest.raises(Interrupted):
        study.begin(Decision(kind="go_on", trial=1, rung=0))
    assert study.ledger.jobs == []
    with pytest.raises(KeyboardInterrupt):  # a second one ends everything at once
        study._stop(signal.SIGINT, None)
