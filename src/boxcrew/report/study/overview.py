"""The first two sections of the page: what a study is worth, and its best settings."""

from __future__ import annotations

import shlex

from boxcrew.core.units import counted, format_duration
from boxcrew.report.doctor.markup import Html, element, join
from boxcrew.report.study.drawing import text
from boxcrew.report.study.types import StudyReport

_MOODS = {True: "", False: "todo", None: "todo"}


def header(report: StudyReport) -> Html:
    counts = report.counts
    facts = [
        (counts.trials, "trials"),
        (counts.complete, "complete"),
        (counts.stopped_early, "stopped early" if report.state == "finished" else "not complete"),
        (counts.failed, "failed"),
    ]
    numbers = join(*(join(element("b", f"{count:,}"), f" {noun} · ") for count, noun in facts))
    how = f"{report.sampler} and {report.pruner} · {format_duration(report.seconds)}"
    return element(
        "header",
        element("p", "boxcrew tune", class_="brand"),
        element("h1", f"{report.model} on {report.data}"),
        element("p", numbers, how, class_="facts"),
    )


def summary_section(report: StudyReport) -> Html:
    """Return the conclusion, the results of the best settings and of the recipe, and what is not over yet."""
    sentence = report.conclusion.sentence
    notes = []
    if report.state != "finished":
        state = "is still running" if report.state == "running" else "was stopped before its end"
        go_on = (
            []
            if report.state == "running"
            else [" ", element("code", resume_command(report)), " continues it."]
        )
        notes.append(element("p", f"This study {state}: all below is what it has found so far.", *go_on))
    if report.stopped_because is not None:
        notes.append(element("p", f"The search ended because {report.stopped_because}.", class_="note"))
    mood = "bad" if report.best is None else _MOODS[report.conclusion.clear]
    return element(
        "section",
        element("h2", f"{sentence[:1].upper()}{sentence[1:]}."),
        _results(report),
        *notes,
        class_=f"summary {mood}".strip(),
        id="summary",
    )


def _results(report: StudyReport) -> Html:
    """Return a table of the metric on both splits."""
    recipe, best, test = report.recipe, report.best, report.test
    columns = ["", "validation split", "test split"] if test is not None else ["", "validation split"]
    rows = []
    noise = recipe.noise
    if recipe.value is not None:
        rows.append(
            ["recipe's own settings", f"{recipe.value:.4g}", _number(None if test is None else test.recipe)]
        )
    if noise is not None:
        rows.append([f"… mean of {len(noise.values)} seeds", f"{noise.mean:.4g} ± {noise.deviation:.2g}", ""])
    if best is not None:
        rows.append(
            [f"best: trial {best.trial}", f"{best.value:.4g}", _number(None if test is None else test.best)]
        )
    if not rows:
        return Html()
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = [
        element(
            "tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1 : len(columns)])
        )
        for row in rows
    ]
    table = element("table", element("thead", head), element("tbody", *body), class_="results")
    return join(element("h3", report.metric), table, *_chance(report))


def _chance(report: StudyReport) -> list[Html]:
    """Return sentences about what the numbers can be trusted for."""
    lines = []
    if (noise := report.recipe.noise) is not None:
        values = ", ".join(f"{value:.4g}" for value in noise.values)
        seeds = ", ".join(map(str, noise.seeds))
        lines.append(
            f"The recipe with the seeds {seeds} reaches {values}: differences of this size are chance."
        )
    if report.best is not None and report.test is not None and report.test.best is not None:
        flattery = report.sign * (report.best.value - report.test.best)
        flatters = (
            f"makes the best look better by {flattery:.2g}" if flattery > 0 else "does not favor the best"
        )
        lines.append(
            f"The search used only the validation split, which {flatters}; the test split was "
            "used once, at the end."
        )
    return [element("p", line, class_="note") for line in lines]


def best_section(report: StudyReport, yaml: str) -> Html:
    """Return the best settings beside the recipe's, the command to train with them, and all of them."""
    best = report.best
    if best is None:
        return element("p", "No trial has been trained to the end, so there are none.")
    if best.changes:
        cells = [(change.setting, text(change.recipe), text(change.best)) for change in best.changes]
        head = element("tr", *(element("th", name, scope="col") for name in ("setting", "recipe", "best")))
        rows = [
            element(
                "tr",
                element("th", element("code", name), scope="row"),
                element("td", element("del", before)),
                element("td", element("ins", after)),
            )
            for name, before, after in cells
        ]
        table = element("table", element("thead", head), element("tbody", *rows), class_="changes")
    else:
        table = element("p", "They are the recipe's own: nothing that was tried is better.")
    return join(
        table,
        element("p", "Train with them once more; on the same machine and data this gives the same numbers:"),
        element("pre", train_command(report), class_="copy"),
        element(
            "details",
            element("summary", f"All {counted(yaml.count(chr(10)), 'line')} of {best.yaml}"),
            element("pre", yaml, class_="copy"),
        ),
    )


def train_command(report: StudyReport) -> str:
    words = f"recipe=study={report.study}:best", f"data={report.data_path}"
    return f"boxcrew train {shlex.join(words)}"


def resume_command(report: StudyReport) -> str:
    return f"boxcrew tune resume {shlex.quote(f'study={report.study}')}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
