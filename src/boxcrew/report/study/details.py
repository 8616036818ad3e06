"""The time of a study, all its trials, and what was searched: the last sections of the page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from boxcrew.core.units import format_duration
from boxcrew.report.doctor.charts import bar, legend
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.study.drawing import text
from boxcrew.report.study.types import StudyReport, TrialReport

_SHOWN = 20  # trials; the others are folded away
_COLORS = {
    "trials": "#0072b2",
    "repeats": "#009e73",
    "starting": "#e69f00",
    "waiting": "#7b8794",
    "left": "#e4e7eb",
}


def time_section(report: StudyReport) -> Html:
    """Return what the time was used for, and how much of the planned time was."""
    budget = report.budget
    whole = max(budget.used, budget.planned or 0.0) * budget.workers
    if whole <= 0:
        return element("p", "No training has ended yet.")
    used = budget.used * budget.workers
    parts = {
        "trials": (budget.trials, "training of trials"),
        "repeats": (budget.repeats, "the recipe with other seeds"),
        "starting": (budget.starting, "start and end of trainings"),
        "waiting": (used - budget.trials - budget.repeats - budget.starting, "decisions and waiting"),
        "left": (whole - used, "not used"),
    }
    shown = {name: (max(0.0, seconds), words) for name, (seconds, words) in parts.items() if seconds > 0}
    pieces = [(seconds / whole, _COLORS[name]) for name, (seconds, _) in shown.items()]
    entries = [
        (_COLORS[name], f"{words}: {format_duration(seconds)} ({100 * seconds / whole:.0f} %)")
        for name, (seconds, words) in shown.items()
    ]
    return join(element("p", _budget_words(report)), bar(*pieces), legend(*entries))


def _budget_words(report: StudyReport) -> str:
    budget = report.budget
    words = f"{format_duration(budget.used)} were used"
    if budget.planned is not None:
        words += f" of {format_duration(budget.planned)} ({100 * budget.used / budget.planned:.0f} %)"
    return words + (f". Trainings at once: {budget.workers}." if budget.workers > 1 else ".")


def trials_section(report: StudyReport) -> Html:
    """Return a table of all trials: the best first, those that were trained longer before the others."""
    if not report.trials:
        return element("p", "No trial has started yet.")
    ordered = sorted(report.trials, key=lambda each: _rank(report, each))
    rest = []
    if len(ordered) > _SHOWN:
        more = element("summary", f"The other {len(ordered) - _SHOWN} trials")
        rest = [element("details", more, _table(report, ordered[_SHOWN:]))]
    return join(_table(report, ordered[:_SHOWN]), *rest)


def _rank(report: StudyReport, trial: TrialReport) -> tuple[bool, bool, int, float, int]:
    value = 0.0 if trial.value is None else -report.sign * trial.value
    failed, complete = trial.failure is not None, trial.state == "complete"
    return failed, not complete, -len(trial.rungs), value, trial.trial


def _table(report: StudyReport, trials: Sequence[TrialReport]) -> Html:
    names = ("trial", "state", report.metric, "steps", "time", "settings")
    classes = ("number", None, "number", "number", "number", None)
    head = element(
        "tr",
        *(element("th", name, scope="col", class_=each) for name, each in zip(names, classes, strict=True)),
    )
    rows = [_row(report, trial, classes) for trial in trials]
    table = element("table", element("thead", head), element("tbody", *rows), class_="trials")
    return element("div", table, class_="wide")


def _row(report: StudyReport, trial: TrialReport, classes: Sequence[str | None]) -> Html:
    is_best = report.best is not None and report.best.trial == trial.trial
    marked = " (best)" if is_best else " (recipe)" if trial.trial == 0 else ""
    state = join(f"{trial.state}{marked}", *_reason(trial))
    settings = [element("code", f"{key}={text(value)}") for key, value in trial.settings.items()]
    cells = (
        str(trial.trial),
        state,
        "–" if trial.value is None else f"{trial.value:.4g}",
        f"{trial.steps:,} of {trial.length:,}",
        format_duration(trial.seconds) if trial.seconds else "–",
        join(*settings) if settings else "the recipe's own",
    )
    columns = [element("td", cell, class_=each) for cell, each in zip(cells, classes, strict=True)]
    return element("tr", *columns, class_="best" if is_best else None)


def _reason(trial: TrialReport) -> list[Html]:
    return [] if trial.failure is None else [element("p", trial.failure, class_="reason")]


def space_section(report: StudyReport) -> Html:
    """Return what was searched and how, and where Optuna has the same."""
    rows = [
        element("tr", element("th", element("code", each.target), scope="row"), element("td", each.text))
        for each in report.space
    ]
    *compared, length = report.rungs
    at = f", compared after {', '.join(map(str, compared))} steps" if compared else ""
    how = (
        f"A trial has {length:,} steps of the recipe{at}. Sampler {report.sampler}, pruner {report.pruner}, "
    )
    dashboard = f"optuna-dashboard {shlex.quote(report.storage)}"
    return join(
        element("table", element("tbody", *rows), class_="space"),
        element("p", f"{how}seed {report.seed}.", class_="note"),
        element("p", "The study as Optuna's dashboard shows it:"),
        element("pre", dashboard, class_="copy"),
    )
