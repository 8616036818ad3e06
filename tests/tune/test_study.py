"""Whole studies: searched at once, killed at random moments, stopped, and wrong from the start."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from boxcrew.api import run_config
from boxcrew.core.lock_owner import owner_of
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from tests.helpers.forked import Forked, boxcrew
from tests.helpers.once import MakeOnce
from tests.helpers.runs import newest_tensors, require_equal, rows_without_times

TRIALS = 4
WORDS = (
    "fc",
    f"trials={TRIALS}",
    "steps=27",
    "batch=16",
    "pruner=halving",
    "sampler=tpe",
    "search.optim.rate=1e-4..1e-1:log",
    "search.net.dropout=0..0.5",
    "net.widths=16",
    "optim.rate=0.02",
    "loader.workers=0",
    "evaluation.batch=64",
)


REPEATED = """
import boxcrew.tune.budget
boxcrew.tune.budget.REPEATS_SHARE = 9
"""
"""The recipe is trained with other seeds too, for which the study is much too short."""

FORKED = (
    REPEATED
    + """
import multiprocessing
import boxcrew.tune.study
import boxcrew.tune.worker
boxcrew.tune.study.preload = lambda: None
boxcrew.tune.worker._context = multiprocessing.get_context("fork")
"""
)
"""Trainings are forked from the study itself, which has imported everything, and not from another process.
That must not have used threads of torch, as it does to measure this machine's speeds for the first time: a
test that forks needs the fixture `whole`, whose study leaves them in the home directory.
"""


def begin(table: Path, out: Path, home: Path, *words: str, first: str = FORKED) -> Forked:
    kept = [word for word in WORDS if word.partition("=")[0] not in {own.partition("=")[0] for own in words}]
    words = ("tune", *kept, *words, f"data={table}", f"out={out}")
    return boxcrew(*words, first=first, cwd=home, HOME=str(home))


def resume(out: Path, home: Path) -> Forked:
    return boxcrew("tune", "resume", f"study={out}", first=FORKED, cwd=home, HOME=str(home))


def require_finished(process: Forked) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    return out


TIMES = {"at", "seconds"}


def events(study: Path) -> list[Mapping[str, Any]]:
    """All events but for their times."""
    lines = (study / "events.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


@pytest.fixture(scope="module")
def whole(make_once: MakeOnce, table: Path, home: Path) -> Path:
    """A study that was never stopped. Not to be changed."""

    def search(folder: Path) -> None:
        require_finished(begin(table, folder / "study", home, first=REPEATED))

    return make_once("study", search) / "study"


def test_a_study_pauses_promotes_and_completes_its_best(whole: Path) -> None:
    report = json.loads((whole / "report.json").read_text())
    trials = report["trials"]
    assert [trial["trial"] for trial in trials] == list(range(TRIALS))
    assert {trial["state"] for trial in trials} == {"complete", "stopped early"}
    assert trials[0]["state"] == "complete"
    assert trials[0]["settings"] == {}
    for trial in trials:  # compared after a ninth, a third and all of the steps
        assert list(trial["rungs"]) == ["3", "9", "27"][: len(trial["rungs"])]
        status = json.loads((Path(trial["run"]) / "status.json").read_text())
        assert status["step"] == trial["steps"]  # no step more than it was given
    begun = [
        (event["trial"], event["rung"])
        for event in events(whole)
        if event["event"] == "begun" and event["repeat"] is None
    ]
    assert len(set(begun)) == len(begun)
    best = max((trial for trial in trials if trial["state"] == "complete"), key=lambda trial: trial["value"])
    assert report["best"]["trial"] == best["trial"]
    assert report["best"]["value"] == report["best"]["summary"]["accuracy"]
    assert report["test"]["best"] > 0
    noise = report["recipe"]["noise"]
    assert (noise["seeds"], noise["values"][0]) == ([0, 1, 2], trials[0]["value"])
    assert report["conclusion"]["sentence"]


def test_the_best_settings_trained_again_give_the_same_weights(
    whole: Path, table: Path, tmp_path: Path
) -> None:
    best = json.loads((whole / "report.json").read_text())["best"]
    config = run_config(
        None, {"recipe": f"study={whole}:best", "data": str(table), "out": tmp_path / "again"}
    )
    outcome = train(config, Screen())
    assert outcome.summary["accuracy"] == best["value"]
    run = whole / "trials" / f"{best['trial']:04d}"
    require_equal(newest_tensors(run), newest_tensors(outcome.folder))


def test_stopped_and_killed_at_random_moments_it_ends_as_if_it_had_not_been(
    whole: Path, table: Path, home: Path, tmp_path: Path
) -> None:
    hurt, moments = tmp_path / "hurt", random.Random(int(os.environ.get("KILL_SEED", "3")))
    stop_by_ctrl_c(begin(table, hurt, home), hurt)
    process = resume(hurt, home)
    for number in range(4):
        time.sleep(moments.uniform(0.2, 1.6))
        if process.poll() is not None:
            break
        if number == 1:  # a training, which the study starts again
            kill_worker(hurt)
            continue
        process.kill()
        process.wait(30)
        process = resume(hurt, home)
    require_finished(process)
    assert events(hurt) == events(whole)
    for run in sorted((whole / "trials").iterdir()):
        require_equal(newest_tensors(run), newest_tensors(hurt / "trials" / run.name))
        assert rows_without_times(run) == rows_without_times(hurt / "trials" / run.name)
    reports = [json.loads((study / "report.json").read_text()) for study in (hurt, whole)]
    assert reports[0]["best"]["settings"] == reports[1]["best"]["settings"]
    assert reports[0]["test"] == reports[1]["test"]
    assert (hurt / "best.yaml").read_text() == (whole / "best.yaml").read_text()


def stop_by_ctrl_c(process: Forked, study: Path) -> None:
    """Interrupt a study as soon as its first training has begun."""
    while not (study / "trials" / "0000" / "checkpoints").is_dir():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert f"boxcrew tune resume study={study}" in out
    assert not any(owner_of(run) for run in (study / "trials").iterdir())


def kill_worker(study: Path) -> None:
    """Kill the process of a training, if one runs."""
    for run in (study / "trials").glob("*"):
        owner = owner_of(run)
        if owner is not None and not owner.is_dead():
            os.kill(owner.pid, signal.SIGKILL)


SLOW = """
import time
import boxcrew.tune.worker
train = boxcrew.tune.worker._train
def late(work):
    time.sleep(1.0 if work.folder.name in ("0000", "0003") else 0.0)
    train(work)
boxcrew.tune.worker._train = late
"""
"""Some trainings take much longer than planned, so that others end before them."""


def test_two_at_once_decide_the_same_whatever_takes_long(
    whole: Path, table: Path, home: Path, tmp_path: Path
) -> None:
    words = ("workers=2", "trials=5")
    studies = [tmp_path / "quick", tmp_path / "late"]
    for study, first in zip(studies, (FORKED, FORKED + SLOW), strict=True):
        require_finished(begin(table, study, home, *words, first=first))
    for kind in ("asked", "begun", "ended"):  # who ends first depends on the clock, but not with what
        quick, late = ([event for event in events(study) if event["event"] == kind] for study in studies)
        key = "trial" if kind == "asked" else "job"
        assert sorted(quick, key=lambda event: event[key]) == sorted(late, key=lambda event: event[key])
    begun = [event for event in events(studies[0]) if event["event"] == "begun"]
    assert {event["slot"] for event in begun} == {0, 1}
    threads = json.loads((studies[0] / "study.json").read_text())["base"]["deploy"]["threads"]
    assert threads * 2 <= max(2, os.cpu_count() or 1)


SLOWER = """
import time
import boxcrew.tune.worker
from boxcrew.train.loop.trainer import Trainer
from boxcrew.tune.runner import Runner
train, do_step = boxcrew.tune.worker._train, Trainer._do_step
def slow(self):
    time.sleep(0.5)
    return do_step(self)
def late(work):
    if work.folder.name == "0001":
        Trainer._do_step = slow
    train(work)
boxcrew.tune.worker._train = late
now = Runner.now.fget
def later(self):
    return now(self) + 490 * (self.folder / "trials" / "0001" / "status.json").is_file()
Runner.now = property(later)
"""
"""The clock is near the end of the study when trial 1 has begun, which is slow."""


def test_a_training_that_would_outlast_the_study_is_cut_by_the_clock(
    whole: Path, table: Path, home: Path, tmp_path: Path
) -> None:
    study = tmp_path / "slower"
    out = require_finished(begin(table, study, home, "time=500s", first=FORKED + SLOWER))
    assert "trial 1: was stopped before step 3 of 27: the time is over" in out
    happened = events(study)
    cut = [event for event in happened if event["event"] == "ended" and event["value"] is None]
    assert [(event["job"], event["failure"]) for event in cut] == [(3, None)]
    assert [event["event"] for event in happened[-2:]] == ["stopped", "finished"]
    report = json.loads((study / "report.json").read_text())
    assert (report["state"], report["best"]["trial"]) == ("finished", 0)
    assert [trial["state"] for trial in report["trials"]] == ["complete", "stopped early"]
    ends = (study / "events.jsonl").read_text().splitlines()
    assert report["budget"]["used"] == json.loads(ends[-1])["at"] > json.loads(ends[-2])["at"]


FEW_FAILURES = """
import boxcrew.tune.runner
boxcrew.tune.runner.MOST_FAILURES = 2
"""


def test_trials_that_all_fail_stop_the_study(whole: Path, table: Path, home: Path, tmp_path: Path) -> None:
    words = ("optim.rate=1e30", "search.optim.rate=1e29..1e30:log", "pruner=none", "guard.failures=1")
    process = begin(table, tmp_path / "failing", home, *words, first=FORKED + FEW_FAILURES)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert "trial 0 failed: " in out
    assert "2 trials in a row failed" in err
    assert "2 failed" in (tmp_path / "failing" / "report.html").read_text().replace("<b>", "").replace(
        "</b>", ""
    )
    ends = [event for event in events(tmp_path / "failing") if event["event"] == "ended"]
    assert [event["value"] for event in ends] == [None, None]
    assert all(event["failure"] for event in ends)
