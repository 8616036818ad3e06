"""The report of a study: `report.json` with all that is known, a page of it, and the best settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from boxcrew.core.files import write_json, write_text
from boxcrew.core.lock_owner import owner_of
from boxcrew.report.doctor.report import set_name
from boxcrew.report.study.page import study_page
from boxcrew.report.study.types import (
    BestReport,
    BudgetReport,
    Change,
    Counts,
    CurvePoint,
    DimensionReport,
    RecipeReport,
    StudyReport,
    TrialReport,
    TrialState,
)
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import read_record
from boxcrew.train.run.stored_settings import flat
from boxcrew.tune.best import best_yaml, winner_of
from boxcrew.tune.conclusion import conclusion_of, final_value, noise_of, test_of
from boxcrew.tune.finish import BEST, TEST
from boxcrew.tune.importance import importance
from boxcrew.tune.ledger import Ledger, Trial
from boxcrew.tune.record import REPEATED, TRIALS, StudyRecord
from boxcrew.tune.run_state import evaluations, trained_seconds
from boxcrew.tune.screen import show
from boxcrew.tune.space import Dimension
from boxcrew.tune.storage import JOURNAL

REPORT, PAGE = "report.json", "report.html"
_SHARED = ("out", "steps", "evaluation.at", "evaluation.every_epochs", "saver.every_steps")
"""Settings that follow from the length of a trial and its rungs."""


def write_report(study: StudyRecord, folder: Path, ledger: Ledger, screen: Screen) -> dict[str, Any]:
    """Write `report.json`, `report.html` and, if there are any, the best settings; show the most important,
    and return the report as JSON values.
    """
    report, winner = make_report(study, folder, ledger), winner_of(ledger, study)
    tree, yaml = report.tree(), "" if winner is None else best_yaml(study, winner)
    write_json(folder / REPORT, tree)
    write_text(folder / PAGE, study_page(report, yaml=yaml))
    if yaml:
        write_text(folder / BEST, yaml)
    show(report, folder, screen)
    return tree


def make_report(study: StudyRecord, folder: Path, ledger: Ledger) -> StudyReport:
    """Return everything about a study, which may have any trials or none, and may not be over."""
    winner, noise, test = winner_of(ledger, study), noise_of(study, ledger), test_of(folder, study)
    recipe = final_value(ledger.trials[0]) if ledger.trials else None
    base, state = study.base, _state(folder)
    network = (
        base["task"].get("detector") or base["task"].get("net") or base.get("detector") or base.get("net")
    )
    return StudyReport(
        study=str(folder),
        state=state,
        data=set_name(base["data"]["path"]),
        data_path=base["data"]["path"],
        model=network["name"] if network else base["task"]["name"],
        metric=study.metric,
        higher_is_better=study.higher_is_better,
        sampler=study.sampler,
        pruner=study.pruner,
        seed=study.seed,
        storage=_storage(study, folder),
        rungs=study.rungs,
        seconds=ledger.at,
        time=study.time,
        budget=_budget(study, folder, ledger),
        stopped_because=None if ledger.stopped is None else ledger.stopped.reason,
        space=tuple(map(_dimension, study.space.dimensions)),
        recipe=RecipeReport(value=recipe, noise=noise),
        best=None if winner is None else _best(study, folder, winner),
        conclusion=conclusion_of(
            study, winner, recipe=recipe, noise=noise, test=test, is_over=state == "finished"
        ),
        test=test,
        counts=_counts(ledger),
        importance=importance(study, ledger),
        trials=tuple(
            _trial(study, folder, trial, _trial_state(ledger, trial, state)) for trial in ledger.trials
        ),
    )


def _storage(study: StudyRecord, folder: Path) -> str:
    """Return Optuna's storage as its dashboard takes it: a URL, or the file of a journal."""
    if study.storage is None:
        return str(folder / JOURNAL)
    if study.storage.startswith("journal:"):
        return str(Path(study.storage.removeprefix("journal:")) / JOURNAL)
    return study.storage


def _state(folder: Path) -> Literal["finished", "running", "stopped"]:
    if (folder / TEST).is_file():
        return "finished"
    owner = owner_of(folder)
    return "running" if owner is not None and not owner.is_dead() else "stopped"


def _budget(study: StudyRecord, folder: Path, ledger: Ledger) -> BudgetReport:
    trials = sum(trained_seconds(folder / TRIALS / f"{trial.number:04d}") for trial in ledger.trials)
    repeats = sum(trained_seconds(folder / REPEATED / str(number)) for number in ledger.repeats())
    processes = sum(end.seconds for end in ledger.ends.values())
    return BudgetReport(
        planned=study.time,
        used=ledger.at,
        trials=trials,
        repeats=repeats,
        starting=max(0.0, processes - trials - repeats),
        workers=study.workers,
    )


def _dimension(dimension: Dimension) -> DimensionReport:
    return DimensionReport(
        name=dimension.name,
        target=dimension.target,
        choices=tuple(dimension.points()) if dimension.choices else (),
        low=dimension.low,
        high=dimension.high,
        log=dimension.log,
        text=str(dimension),
    )


def _best(study: StudyRecord, folder: Path, winner: Trial) -> BestReport:
    return BestReport(
        trial=winner.number,
        value=winner.values[winner.rung],
        settings=winner.asked.settings,
        changes=_changes(study, winner),
        summary=read_record(folder / TRIALS / f"{winner.number:04d}", "summary.json"),
        yaml=BEST,
    )


def _changes(study: StudyRecord, trial: Trial) -> tuple[Change, ...]:
    """Return the settings in which a trial differs from the recipe: what they were and what they are."""
    before = flat(study.base)
    after = flat(study.config(trial.asked.settings, trial.asked.rungs, Path("best")).tree())
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return tuple(
        Change(setting=key, recipe=before.get(key), best=after.get(key))
        for key in changed
        if key not in _SHARED
    )


def _counts(ledger: Ledger) -> Counts:
    failed = sum(trial.failure is not None for trial in ledger.trials)
    complete = sum(trial.is_complete and trial.failure is None for trial in ledger.trials)
    return Counts(
        trials=len(ledger.trials),
        complete=complete,
        stopped_early=len(ledger.trials) - complete - failed,
        failed=failed,
        repeats=sum(end.value is not None for end in ledger.repeats().values()),
    )


def _trial_state(ledger: Ledger, trial: Trial, state: str) -> TrialState:
    if trial.failure is not None:
        return "failed"
    if trial.is_complete:
        return "complete"
    if state == "finished":
        return "stopped early"
    is_training = any(job.trial == trial.number and job.repeat is None for job in ledger.running())
    return "running" if is_training and state == "running" else "paused"


def _trial(study: StudyRecord, folder: Path, trial: Trial, state: TrialState) -> TrialReport:
    run, rungs = folder / TRIALS / f"{trial.number:04d}", trial.asked.rungs
    rows = [row for row in evaluations(run) if study.metric in row]
    return TrialReport(
        trial=trial.number,
        state=state,
        failure=trial.failure,
        settings=trial.asked.settings,
        params=trial.asked.params,
        value=trial.values.get(trial.rung),
        steps=rungs[trial.rung] if trial.values else 0,
        length=rungs[-1],
        rungs={str(rungs[rung]): value for rung, value in trial.values.items()},
        curve=tuple(
            CurvePoint(step=int(row["step"]), seconds=row.get("time"), value=row[study.metric])
            for row in rows
        ),
        seconds=trained_seconds(run),
        run=str(run),
    )
