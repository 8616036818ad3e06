"""The end of a study: the best trial is completed, chance is measured, and the test split is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boxcrew.core.errors import BoxcrewError, DataError
from boxcrew.core.files import write_json, write_text
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import read_record
from boxcrew.train.run.validate import ValConfig, validate
from boxcrew.tune.best import best_yaml, winner_of
from boxcrew.tune.budget import Budget
from boxcrew.tune.ledger import Ledger, StudyFinished, Trial
from boxcrew.tune.record import TRIALS, StudyRecord
from boxcrew.tune.runner import Runner
from boxcrew.tune.scheduler import Decision, completion

TEST, BEST = "test.json", "best.yaml"


def finish(runner: Runner) -> None:
    """Do what is still to be done when the search is over; what was done before a stop is not repeated."""
    study, ledger = runner.study, runner.ledger
    decision = last_promotion(ledger, study)
    if decision is not None:
        budget = Budget.of(study, ledger, runner.now)
        # Without any result a training is begun that may be too long.
        is_first = winner_of(ledger, study) is None and not budget.is_over
        if is_first or budget.allows_promotion(runner.part(decision)):
            runner.begin(decision)
            runner.wait_for_all()
    winner = winner_of(ledger, study)
    if winner is None:
        raise _nothing_finished(ledger, runner.folder)
    runner.repeat_recipe()
    write_text(runner.folder / BEST, best_yaml(study, winner))
    _test(runner.folder, study, winner)
    if not ledger.is_finished:
        runner.add(StudyFinished(at=runner.now))


def last_promotion(ledger: Ledger, study: StudyRecord) -> Decision | None:
    """Return the trial to complete at the end; None if there is none, or if that was started before."""
    assert ledger.stopped is not None
    if any(job.repeat is None for job in ledger.jobs[ledger.num_searched :]):
        return None
    return completion(ledger.trials, study)


def _nothing_finished(ledger: Ledger, folder: Path) -> BoxcrewError:
    reasons = [trial.failure for trial in ledger.trials if trial.failure is not None]
    if reasons:
        return BoxcrewError(
            f"no trial was finished; the last one: {reasons[-1]}", advice=f"the runs are in {folder}"
        )
    return BoxcrewError(
        "no trial was finished in this time", advice="give more time=, or fewer steps= for a trial"
    )


def _test(folder: Path, study: StudyRecord, winner: Trial) -> None:
    """Measure the best trial and the recipe's on the test split, once."""
    report = read_record(folder, TEST)
    if report.get("trial") == winner.number:
        return
    numbers = {number: test_numbers(folder, study, number) for number in {winner.number, 0}}
    write_json(
        folder / TEST,
        {"trial": winner.number, "best": numbers[winner.number], "recipe": numbers[0]},
    )


def test_numbers(folder: Path, study: StudyRecord, number: int) -> dict[str, Any] | None:
    """Return the numbers of a trial on the test split; None if no such split is left to look at."""
    run, config = folder / TRIALS / f"{number:04d}", study.base_config
    if config.data.val == "test" or not (run / "weights" / "best.safetensors").is_file():
        return None
    settings = {"run": run, "split": "test", "batch": config.evaluation.batch, "device": config.device}
    try:
        report = validate(ValConfig.of(settings), Screen())
    except DataError:  # there is no such split
        return None
    numbers: dict[str, Any] = report["best"]["numbers"]
    return numbers
