"""The report of a study in any state: one page that needs nothing else, and the same as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import Mock

import pytest

from boxcrew.report.study.overview import train_command
from boxcrew.report.study.page import study_page
from boxcrew.report.study.types import StudyReport
from boxcrew.train.output.screen import Screen
from boxcrew.tune.choose import choose_space
from boxcrew.tune.ledger import Ledger, SearchStopped, TrainingEnded, TrainingStarted, TrialDrawn
from boxcrew.tune.record import TRIALS, StudyRecord
from boxcrew.tune.report import make_report, write_report
from boxcrew.tune.sampling import draw

HOSTILE = "</style><script>alert(1)</script>\"'$x^ onerror=x &lt;"
VOID = {"meta", "img", "br"}


class Checked(HTMLParser):
    """A reader of a page that notes what must not be there, and whether all elements are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in {"href", "src"}:
                assert (value or "").startswith("#"), value
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page_text(page: str) -> str:
    """Return the text of a page that is whole and safe."""
    checked = Checked(page)
    assert checked.open == []
    assert "script" not in checked.tags
    assert not re.search(r"url\(|@import|nan\b", page.partition("</head>")[2])
    return " ".join(" ".join(checked.text).split())


def searched(study: StudyRecord, folder: Path, count: int, *, failing: bool = False) -> Ledger:
    """Return the ledger of a study with trials of which every third goes on to each further rung."""
    ledger = Ledger(folder=folder)
    for number in range(count):
        params = draw(study, [], number)
        assert params is not None
        settings = study.space.settings(params) if number else {}
        ledger.apply(TrialDrawn(trial=number, params=params, settings=settings, rungs=study.rungs, bracket=0))
        last = 2 if number % 9 == 0 else 1 if number % 3 == 0 else 0
        for rung in range(last + 1):
            job = len(ledger.jobs)
            ledger.apply(TrainingStarted(job=job, trial=number, rung=rung, slot=0, begins=job, ends=job + 1))
            value = None if failing else 0.3 + 0.1 * rung + (number * 37 % 101) / 400
            failure = f"loss is not finite {HOSTILE}" if failing else None
            ledger.apply(TrainingEnded(job=job, value=value, failure=failure, seconds=2.0, at=job * 2.0 + 2))
            if failing:
                break
            write_row(folder, number, study.rungs[rung], value or 0.0)
    return ledger


def write_row(folder: Path, number: int, step: int, value: float) -> None:
    run = folder / TRIALS / f"{number:04d}"
    run.mkdir(parents=True, exist_ok=True)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "time": step / 10, "accuracy": value}) + "\n")
    (run / "status.json").write_text(json.dumps({"train_seconds": step / 10}))


def repeat(ledger: Ledger, *values: float) -> None:
    """Note the results of the recipe with other seeds."""
    for number, value in enumerate(values, start=1):
        job = len(ledger.jobs)
        begun = TrainingStarted(job=job, trial=0, rung=2, repeat=number, slot=0, begins=job, ends=job)
        ledger.apply(begun)
        ledger.apply(TrainingEnded(job=job, value=value, seconds=3.0, at=ledger.at + 3))


def reported(study: StudyRecord, folder: Path, ledger: Ledger) -> tuple[StudyReport, str]:
    """Write the report, and return it as read from its JSON file, and the text of its page."""
    write_report(study, folder, ledger, Screen())
    report = StudyReport.of(json.loads((folder / "report.json").read_text()))
    return report, page_text((folder / "report.html").read_text())


def test_a_finished_study_shows_everything(record: StudyRecord, tmp_path: Path) -> None:
    study = record.model_copy(update={"time": 120.0})
    ledger = searched(study, tmp_path, 30)
    repeat(ledger, 0.41, 0.45)
    ledger.apply(SearchStopped(reason="the time is used up", at=ledger.at))
    numbers = {"best": {"accuracy": 0.61}, "recipe": {"accuracy": 0.5}}
    (tmp_path / "test.json").write_text(json.dumps({"trial": 0, **numbers}))
    report, text = reported(study, tmp_path, ledger)
    assert report == make_report(study, tmp_path, ledger)
    assert report.state == "finished"
    assert {trial.state for trial in report.trials} == {"complete", "stopped early"}
    assert report.importance is not None
    assert report.importance.method in text
    assert report.conclusion.sentence[1:] in text
    assert train_command(report) in text
    for word in (
        "Learning curves",
        "All settings together",
        "0.61",
        "optim.rate",
        "of 2m00s",
        "optuna-dashboard",
    ):
        assert word in text
    assert (tmp_path / "best.yaml").read_text() in (tmp_path / "report.html").read_text().replace(
        "&#x27;", "'"
    )
    assert report.budget.trials == pytest.approx(sum(trial.steps for trial in report.trials) / 10)
    assert report.budget.used == ledger.at


def test_the_conclusion_follows_from_chance_and_the_test_split(record: StudyRecord, tmp_path: Path) -> None:
    ledger = searched(record, tmp_path, 19)
    recipe, best = ledger.trials[0].values[2], max(trial.values.get(2, 0.0) for trial in ledger.trials)
    assert make_report(record, tmp_path, ledger).conclusion.clear is None  # chance was not measured
    repeat(ledger, recipe + 0.001, recipe - 0.001)
    assert make_report(record, tmp_path, ledger).conclusion.clear is True
    values = {"best": {"accuracy": 0.4}, "recipe": {"accuracy": 0.5}}
    (tmp_path / "test.json").write_text(json.dumps({"trial": 9, **values}))
    conclusion = make_report(record, tmp_path, ledger).conclusion
    assert (conclusion.clear, "not on the test split" in conclusion.sentence) == (False, True)
    noisy = searched(record, tmp_path / "noisy", 19)
    repeat(noisy, recipe - 0.2, best + 0.1)
    report = make_report(record, tmp_path / "noisy", noisy)
    assert report.conclusion.clear is False
    assert "varies by" in report.conclusion.sentence


@pytest.mark.parametrize("count", [0, 1])
def test_a_study_that_has_just_begun(record: StudyRecord, tmp_path: Path, count: int) -> None:
    report, text = reported(record, tmp_path, searched(record, tmp_path, count))
    assert report.state == "stopped"
    assert "boxcrew tune resume" in text
    assert (report.best is None) == (count == 0)
    assert report.importance is None
    assert (tmp_path / "best.yaml").exists() == (count == 1)


def test_a_killed_study_says_what_is_paused_and_how_to_go_on(record: StudyRecord, tmp_path: Path) -> None:
    ledger = searched(record, tmp_path, 12)
    ledger.apply(TrialDrawn(trial=12, params={}, settings={"net.dropout": 0.3}, rungs=(3, 9, 27), bracket=0))
    ledger.apply(TrainingStarted(job=len(ledger.jobs), trial=12, rung=0, slot=0, begins=1, ends=2))
    report, text = reported(record, tmp_path, ledger)
    assert "chance is measured at the end" in text
    assert {trial.state for trial in report.trials} == {"complete", "paused"}
    assert f"boxcrew tune resume study={tmp_path}" in text


def test_a_study_of_which_all_trials_failed_names_the_reasons(record: StudyRecord, tmp_path: Path) -> None:
    report, text = reported(record, tmp_path, searched(record, tmp_path, 10, failing=True))
    assert report.best is None
    assert report.counts.failed == 10
    assert text.count("loss is not finite") == 10
    assert "no trial has been trained to the end" in text.lower()
    assert not (tmp_path / "best.yaml").exists()


def test_the_dashboard_is_given_the_storage_of_the_study(record: StudyRecord, tmp_path: Path) -> None:
    commands = {
        None: f"{tmp_path}/journal.log",
        "journal:/j": "/j/journal.log",
        "sqlite:////s.db": "sqlite:////s.db",
    }
    for storage, expected in commands.items():
        study = record.model_copy(update={"storage": storage})
        report = make_report(study, tmp_path, Ledger(folder=tmp_path))
        assert f"optuna-dashboard {expected}" in page_text(study_page(report, yaml=""))


def test_five_hundred_trials_fit_on_a_page(record: StudyRecord, tmp_path: Path) -> None:
    report, text = reported(record, tmp_path, searched(record, tmp_path, 500))
    assert report.counts.trials == 500
    assert "The other 480 trials" in text
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_names_cannot_break_the_page(record: StudyRecord, tmp_path: Path) -> None:
    words = {"optim": {"name": "sgd,adamw", "momentum": "0.5..0.9"}}
    space = choose_space(words, record.base_config, Mock())
    study = record.model_copy(update={"space": space, "sampler": "random"})
    report = make_report(study, tmp_path, searched(study, tmp_path, 12))
    hostile = report.model_copy(
        update={
            **dict.fromkeys(("study", "data", "data_path", "model", "metric", "storage"), HOSTILE),
            "space": tuple(
                each.model_copy(update={"target": HOSTILE, "text": HOSTILE, "choices": (HOSTILE, "b")})
                for each in report.space
            ),
            "trials": tuple(
                trial.model_copy(update={"settings": {HOSTILE: HOSTILE}, "failure": HOSTILE})
                for trial in report.trials
            ),
        }
    )
    assert HOSTILE in page_text(study_page(hostile, yaml=HOSTILE))
