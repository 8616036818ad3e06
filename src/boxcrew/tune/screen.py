"""Prints the most important lines of a study's report."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.units import counted, format_duration
from boxcrew.report.study.types import OnTest, StudyReport
from boxcrew.train.output.screen import Screen
from boxcrew.tune.runner import text, words

_SHOWN = 8  # trials in the table


def show(report: StudyReport, folder: Path, screen: Screen) -> None:
    """Show the best trials, the changed settings, and what the result is worth."""
    _show_trials(report, screen)
    best, counts, noise = report.best, report.counts, report.recipe.noise
    if best is not None and best.changes:
        rows = [(change.setting, text(change.recipe), text(change.best)) for change in best.changes]
        screen.table(f"trial {best.trial}", ("setting", "recipe", "best"), rows, numbers=False)
    early = "stopped early" if report.state == "finished" else "not complete"
    screen.info(
        f"{counted(counts.trials, 'trial')} in {format_duration(report.seconds)}: "
        f"{counts.complete} complete, {counts.stopped_early} {early}, {counts.failed} failed"
    )
    if noise is not None:
        values = ", ".join(f"{value:.4g}" for value in noise.values)
        screen.info(f"the recipe with {len(noise.values)} seeds: {values}")
    if report.test is not None:
        _show_test(report, report.test, screen)
    screen.info(f"result: {report.conclusion.sentence}")
    if best is not None:
        screen.info(f"best settings: {folder / best.yaml} (boxcrew train recipe=study={folder}:best)")
    screen.info(f"report: {folder / 'report.html'}")


def _show_trials(report: StudyReport, screen: Screen) -> None:
    tried = [trial for trial in report.trials if trial.value is not None]
    # Longer trainings come first: values after a part of the steps are not to be compared with them.
    tried.sort(
        key=lambda trial: (-len(trial.rungs), trial.state != "complete", -report.sign * (trial.value or 0.0))
    )
    rows = [
        (
            str(trial.trial),
            f"{trial.value:.4g}",
            str(trial.steps),
            trial.state,
            words(trial.settings),
        )
        for trial in tried[:_SHOWN]
    ]
    if rows:
        columns = ("trial", report.metric, "steps", "state", "settings")
        screen.table("best trials", columns, rows, numbers=False)


def _show_test(report: StudyReport, test: OnTest, screen: Screen) -> None:
    values = {"best": test.best, "recipe": test.recipe}
    parts = [f"{name} {value:.4g}" for name, value in values.items() if value is not None]
    if report.best is not None and test.best is not None:
        parts.append(f"best on the validation split {report.best.value:.4g}")
    screen.info(f"test split, {report.metric}: {', '.join(parts)}")
