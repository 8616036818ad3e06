"""How a run ended, told by others if its own process could not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.core.lock_owner import LOCK, Owner
from boxcrew.core.parent_process import RUN_FOLDERS
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume
from boxcrew.train.run.lock import locked
from boxcrew.train.run.status import announce, record_failure, unnoticed_end
from tests.helpers.copies import copied

REASON = "replica 1 was killed by SIGKILL"


def write(folder: Path, name: str = "status.json", **record: Any) -> None:
    (folder / name).write_text(json.dumps(record))


def read(folder: Path, name: str = "status.json") -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / name).read_text())
    return record


@pytest.fixture
def dead() -> Owner:
    """The owner of a lock whose process was killed."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(Owner.me(), pid=process.pid, born="1")


@pytest.mark.parametrize("state", ["running", "interrupted", "failed"])
def test_the_launcher_corrects_what_a_chief_wrote_or_could_not_write(
    tmp_path: Path, dead: Owner, state: str
) -> None:
    write(tmp_path, state=state, reason="stopped by SIGTERM", step=7, pid=3)
    write(tmp_path, "summary.json", state="interrupted", stopped_because="stopped by SIGTERM", AP=0.5)
    (tmp_path / LOCK).write_text(json.dumps(asdict(dead)))
    record_failure([tmp_path], REASON, is_own=False)
    assert read(tmp_path) == {"state": "failed", "reason": REASON, "step": 7, "pid": 3}
    assert read(tmp_path, "summary.json") == {"state": "failed", "stopped_because": REASON, "AP": 0.5}
    assert not (tmp_path / LOCK).exists()


def test_a_chief_that_failed_by_itself_has_written_why(tmp_path: Path) -> None:
    write(tmp_path, state="failed", reason="too little memory")
    record_failure([tmp_path], "replica 0 ended with exit code 1", is_own=True)
    assert read(tmp_path)["reason"] == "too little memory"
    write(tmp_path, state="running", reason=None)
    record_failure([tmp_path, tmp_path / "gone"], "replica 0 ended with exit code 1", is_own=True)
    assert read(tmp_path) == {"state": "failed", "reason": "replica 0 ended with exit code 1"}


def test_the_lock_of_a_process_that_lives_stays(tmp_path: Path) -> None:
    with locked(tmp_path, print):
        record_failure([tmp_path], REASON, is_own=False)
        assert (tmp_path / LOCK).exists()


def test_the_chief_names_its_directories_to_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(tmp_path)  # no launcher: nothing happens
    monkeypatch.setenv(RUN_FOLDERS, str(tmp_path / "folders"))
    announce(tmp_path / "run")
    announce(tmp_path / "run" / "1-stage")
    lines = (tmp_path / "folders").read_text().splitlines()
    assert lines == [str(tmp_path / "run"), str(tmp_path / "run" / "1-stage")]


def test_a_running_status_without_a_process_means_an_end_without_notice(tmp_path: Path, dead: Owner) -> None:
    assert unnoticed_end(tmp_path) is None
    write(tmp_path, state="running", step=40, pid=dead.pid)
    (tmp_path / LOCK).write_text(json.dumps(asdict(dead)))
    assert f"ended without notice at step 40 or later: process {dead.pid} " in (unnoticed_end(tmp_path) or "")
    (tmp_path / LOCK).write_text(json.dumps(asdict(Owner.me())))
    assert unnoticed_end(tmp_path) is None, "it runs"
    (tmp_path / LOCK).unlink()
    assert unnoticed_end(tmp_path) is not None
    for state in ("finished", "interrupted", "failed"):
        write(tmp_path, state=state, step=40, pid=1)
        assert unnoticed_end(tmp_path) is None
    (tmp_path / "2-heads").mkdir()
    write(tmp_path / "2-heads", state="running", step=3, pid=1)
    assert "at step 3 or later" in (unnoticed_end(tmp_path, ["1-body", "2-heads"]) or "")


def test_who_resumes_a_killed_run_is_told(tiny_run: Path, tmp_path: Path) -> None:
    run = copied(tiny_run, tmp_path / "run")
    write(run, state="running", step=2, pid=1)
    screen = Screen()
    screen.open_log(tmp_path / "log")
    with pytest.raises(UsageError, match="already finished"):
        resume(run, {}, screen)
    assert "the run ended without notice at step 2 or later" in (tmp_path / "log").read_text()
