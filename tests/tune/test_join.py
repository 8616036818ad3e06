"""Trainings that other machines take from a study: real processes, killed and stopped; what is refused."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.core.lock_owner import LEASE, LOCK, Owner, owner_of
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.lock import locked
from boxcrew.tune import jobs
from boxcrew.tune.jobs import JOBS, JOINED, KILL, JoinedBackend, Posted, PostedTraining, Watch, unclaimed
from boxcrew.tune.join import JoinConfig, join
from boxcrew.tune.record import StudyRecord
from boxcrew.tune.worker import Work
from tests.helpers.forked import Forked, boxcrew
from tests.helpers.runs import newest_tensors, require_equal, rows_without_times
from tests.tune.test_study import FORKED, REPEATED, WORDS, begin, events, require_finished, whole  # noqa: F401

JOINING = FORKED + "import boxcrew.tune.join\nboxcrew.tune.join.preload = lambda: None\n"
SLOW = """
import time
from boxcrew.train.loop.trainer import Trainer
do_step = Trainer._do_step
def slow(self):
    time.sleep(0.05)
    return do_step(self)
Trainer._do_step = slow
"""
"""Steps take long enough that a training can be killed between two of them."""


def joiner(study: Path, home: Path, *words: str, first: str = JOINING) -> Forked:
    return boxcrew("tune", "join", f"study={study}", *words, first=first, cwd=home, HOME=str(home))


def wait_for(study: Path, process: Forked) -> None:
    """Wait until the study has begun."""
    while not (study / JOBS).is_dir():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def training_of(process: Forked, study: Path) -> bool:
    """Whether a machine that has joined has begun steps of a training."""
    for claim in (study / JOBS).glob("*.claim"):
        if f"-{process.pid}-" in claim.read_text():
            run: str = json.loads(claim.with_suffix(".json").read_text())["config"]["out"]
            return (study / run / "metrics.jsonl").is_file()
    return False


@pytest.mark.usefixtures("whole")
def test_machines_that_join_are_killed_and_leave_and_the_study_is_the_same(
    table: Path, home: Path, tmp_path: Path
) -> None:
    words = ("workers=2", "summaries.every_steps=1")
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    require_finished(begin(table, alone, home, *words))
    study = begin(table, shared, home, *words, "on=join")
    wait_for(shared, study)
    killed, leaving = (joiner(shared, home, "workers=1", first=JOINING + SLOW) for _ in range(2))
    for process, number in ((killed, signal.SIGKILL), (leaving, signal.SIGINT)):
        while not training_of(process, shared):
            assert process.poll() is None, process.communicate()
            assert study.poll() is None, study.communicate()
            time.sleep(0.01)
        os.kill(process.pid, number)
    assert leaving.wait(60) == 130, leaving.communicate()
    last = joiner(shared, home, "workers=2")
    require_finished(study)
    assert "the study has ended" in require_finished(last)
    for kind in ("asked", "begun", "ended"):
        key = "trial" if kind == "asked" else "job"
        first, second = (
            sorted((event for event in events(each) if event["event"] == kind), key=lambda event: event[key])
            for each in (alone, shared)
        )
        assert first == second
    for run in sorted((alone / "trials").iterdir()):
        other = shared / "trials" / run.name
        require_equal(newest_tensors(run), newest_tensors(other))
        assert rows_without_times(run) == rows_without_times(other)
        assert owner_of(other) is None
    assert not (shared / JOBS).exists()
    assert not (shared / JOINED).exists()


@pytest.mark.usefixtures("whole")
def test_a_study_that_is_killed_finds_its_trainings_again(table: Path, home: Path, tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    require_finished(begin(table, alone, home, "trials=2"))
    study = begin(table, shared, home, "trials=2", "on=join")
    wait_for(shared, study)
    helper = joiner(shared, home, first=JOINING + SLOW)
    while not training_of(helper, shared):
        assert helper.poll() is None, helper.communicate()
        time.sleep(0.01)
    study.kill()
    study.wait(30)
    again = boxcrew("tune", "resume", f"study={shared}", first=FORKED, cwd=home, HOME=str(home))
    require_finished(again)
    out = require_finished(helper)
    assert out.count("begins: trials/0000, up to step 3") == 1  # which goes on while the study is away
    assert events(shared) == events(alone)


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'boxcrew[train,tune,ray]'"
)
@pytest.mark.usefixtures("whole")
def test_a_cluster_of_ray_joins_and_one_of_its_processes_is_killed(
    table: Path, home: Path, tmp_path: Path
) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    require_finished(begin(table, alone, home, "trials=2", first=FORKED.removeprefix(REPEATED)))
    kept = [word for word in WORDS if not word.startswith("trials=")]
    words = ("tune", *kept, "trials=2", f"data={table}", f"out={shared}", "on=ray")
    process = subprocess.Popen(
        [sys.executable, "-m", "boxcrew", *words],
        cwd=home,
        env={**os.environ, "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while not (claims := list((shared / JOBS).glob("*.claim"))) or not claims[0].read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    claimed_by = json.loads(claims[0].read_text())["by"]
    os.kill(int(claimed_by.split("-")[-2]), signal.SIGKILL)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    assert events(shared) == events(alone)


def posted(study: Path, job: int = 3) -> Posted:
    (study / JOBS).mkdir(exist_ok=True)
    new = Posted(study=study, job=job, word=f"{job:x}")
    new.post(Work(config={"out": str(study / "trials" / "0001"), "steps": 9}, pause_at=3))
    return new


def test_only_one_machine_gets_a_training(tmp_path: Path) -> None:
    training = posted(tmp_path)
    begin_, winners = threading.Barrier(8), list[str]()

    def claim(name: str) -> None:
        begin_.wait()
        if training.claim(name):
            winners.append(name)

    threads = [threading.Thread(target=claim, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert training.claimed_by() == winners[0]
    assert list(unclaimed(tmp_path)) == []


def test_a_study_that_is_mounted_elsewhere_has_its_runs_there(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    posted(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    (found,) = Posted.all(tmp_path / "there")
    work = found.work()
    assert work is not None
    assert (work.folder, work.pause_at) == (tmp_path / "there" / "trials" / "0001", 3)


def test_who_leaves_is_lost_at_once_and_a_silent_one_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "EXPIRY", 0.2)
    training, watch = posted(tmp_path), Watch(tmp_path)
    assert not watch.is_lost(training), "nobody has claimed it"
    training.claim("other")
    folder = tmp_path / JOINED / "other"
    with locked(folder, lambda _: None):
        assert not watch.is_lost(training)
    assert watch.is_lost(training), "it has left"
    folder.mkdir(parents=True)
    elsewhere = Owner(pid=1, host="elsewhere", born="1", since="now")
    (folder / LOCK).write_text(json.dumps(vars(elsewhere)))
    (folder / LEASE).write_text(json.dumps({"generation": 1, "word": "w"}))
    assert not watch.is_lost(training)
    time.sleep(0.3)
    os.utime(folder / LEASE, ns=(1, 1))  # it is alive, whatever its clock says
    assert not watch.is_lost(training)
    time.sleep(0.3)
    assert watch.is_lost(training)


def test_one_that_was_lost_and_wakes_up_ends_nothing(tmp_path: Path) -> None:
    work = Work(config={"out": str(tmp_path / "trials" / "0001")}, pause_at=3)
    backend = JoinedBackend(tmp_path)
    training = backend.begin(7, work)
    (first,) = Posted.all(tmp_path)
    assert first.claim("gone")
    assert list(backend.wait([training], 0.0)) == [training]
    assert training.failure() is None
    again = backend.begin(7, work)
    first.end("it woke up", 1.0)
    assert list(backend.wait([again], 0.0)) == []
    (second,) = Posted.all(tmp_path)
    assert second.word != first.word


def test_what_nobody_has_begun_is_withdrawn(tmp_path: Path) -> None:
    work = Work(config={"out": str(tmp_path / "trials" / "0001")}, pause_at=3)
    (tmp_path / JOBS).mkdir()
    training = PostedTraining(tmp_path, 0, work, Watch(tmp_path))
    training.stop()
    assert training.has_ended()
    assert list(unclaimed(tmp_path)) == []
    assert training.failure() is None
    assert Posted.all(tmp_path) == []
    begun = PostedTraining(tmp_path, 1, work, Watch(tmp_path))
    (claimed,) = Posted.all(tmp_path)
    claimed.claim("other")
    begun.kill()
    assert claimed.asked() == KILL


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "trains on its own machine alone"),
        ({"on": "join", "versions": {"torch": "1.0"}}, "the study was begun with 1.0"),
    ],
)
def test_studies_that_cannot_be_joined(
    record: StudyRecord, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match="not a study"):
        join(JoinConfig(study=tmp_path), Screen())
    record.model_copy(update=changes).write(tmp_path)
    with pytest.raises(UsageError, match=message):
        join(JoinConfig(study=tmp_path), Screen())
