"""What another process is told about a run: `boxcrew status`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from boxcrew.cli.document import Document
from boxcrew.cli.output import Output
from boxcrew.cli.status import status_command
from boxcrew.core.errors import UsageError
from boxcrew.core.lock_owner import LEASE, LOCK, Owner
from boxcrew.train.run import lease
from boxcrew.train.run.lock import locked
from boxcrew.train.run.state import RunState, run_state
from tests.helpers.copies import copied


def nowhere(text: str) -> None: ...


def state_of(folder: Path) -> RunState:
    return run_state(folder, nowhere)


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lease, "EXPIRY", 0.3)
    return copied(tiny_run, tmp_path / "run")


@pytest.fixture
def lock(run: Path) -> Callable[..., None]:
    """`(pid=…)`: lets the run be at work, in this process but for these changes."""

    def write(**changes: object) -> None:
        owner = replace(Owner.me(), **changes)  # type: ignore[arg-type]
        (run / LOCK).write_text(json.dumps(asdict(owner)))
        status = json.loads((run / "status.json").read_text())
        status |= {"state": "running", "pid": owner.pid, "step": 5}
        (run / "status.json").write_text(json.dumps(status))

    return write


def test_a_run_that_has_ended(run: Path) -> None:
    state = state_of(run)
    assert (state.state, state.step, state.fraction, state.checkpoint) == ("finished", 3, 1.0, 3)
    assert [process["name"] for process in state.processes] == ["replica 0"]
    assert (state.since, state.takeovers) == (None, 0)


def test_a_run_at_work_and_one_that_was_killed(run: Path, lock: Callable[..., None]) -> None:
    lock()
    assert state_of(run).state == "running"
    lock(born="1")
    killed = state_of(run)
    assert (killed.state, killed.checkpoint) == ("killed", 3)
    assert killed.lines(run)[-1].startswith("lost: the steps after 3 are computed again")


def test_a_run_on_another_host(run: Path, lock: Callable[..., None]) -> None:
    """Its process is taken to be dead if it gives no sign of life."""
    lock(host="elsewhere", pid=1)
    assert state_of(run).state == "killed"
    with locked(run, nowhere):
        assert state_of(run).state == "preparing"
        assert state_of(run).takeovers == 1
    assert (run / LEASE).exists()


def test_the_command(run: Path, lock: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    lock()
    out = Output(Document(is_wanted=False))
    status_command([f"run={run}"], out)
    assert (out.document.result["state"], out.document.result["run"]) == ("running", str(run))
    printed = capsys.readouterr().out
    assert "running since " in printed
    assert "last checkpoint: step 3" in printed
    with pytest.raises(UsageError, match="not a run directory"):
        status_command([f"run={run.parent}"], out)
