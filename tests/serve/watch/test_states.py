"""What the page says that a run is doing, and what the command says that resumes it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from boxcrew.core.lock_owner import LOCK, Owner
from boxcrew.serve.watch.reading import JsonRecord
from boxcrew.serve.watch.state import Lock, state_of
from boxcrew.train.run.status import unnoticed_end

NONE, HELD = Lock(), Lock(is_held=True, seconds=100.0)


@pytest.mark.parametrize(
    ("status", "summary", "lock", "written", "expected"),
    [
        ({}, {}, HELD, None, "preparing"),
        ({}, {}, NONE, None, "killed"),  # before its first step
        ({"state": "running"}, {}, HELD, 200.0, "running"),
        ({"state": "running"}, {}, NONE, 200.0, "killed"),
        ({"state": "running"}, {}, HELD, 50.0, "preparing"),  # it was killed, and is resumed now
        ({"state": "interrupted"}, {"state": "interrupted"}, NONE, 200.0, "interrupted"),
        ({"state": "interrupted"}, {"state": "interrupted"}, HELD, 50.0, "preparing"),
        ({"state": "failed", "reason": "no room"}, {}, NONE, 200.0, "failed"),
        ({"state": "finished"}, {}, HELD, 200.0, "finished"),  # it gives advice, and draws its plots
        ({}, {"state": "finished"}, NONE, None, "finished"),  # a stage that was solved
        ({"state": 7}, {"state": ["x"]}, NONE, 200.0, "killed"),
    ],
)
def test_state(
    status: dict[str, object], summary: dict[str, object], lock: Lock, written: float | None, expected: str
) -> None:
    state = state_of(JsonRecord(status), JsonRecord(summary), lock, status_seconds=written)
    assert state.name == expected
    assert state.reason == (status.get("reason") if expected == "failed" else None)


def test_a_lock_is_held_by_a_process_that_lives(tmp_path: Path) -> None:
    """The page and the command that resumes a run say the same."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    owner = replace(Owner.me(), pid=process.pid, born=stat[19])
    (tmp_path / LOCK).write_text(json.dumps(asdict(owner)))
    (tmp_path / "status.json").write_text(json.dumps({"state": "running", "step": 3, "pid": process.pid}))
    lock = Lock.on(tmp_path)
    assert (lock.is_held, lock.host) == (True, socket.gethostname())
    assert unnoticed_end(tmp_path) is None
    process.kill()
    process.wait()
    assert not Lock.on(tmp_path).is_held
    assert unnoticed_end(tmp_path) is not None


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", json.dumps({"pid": "x", "host": socket.gethostname(), "born": 1, "since": None})]
    + [
        json.dumps({"pid": pid, "host": socket.gethostname(), "born": "1", "since": ""})
        for pid in (-1, 10**30)
    ],
)
def test_a_damaged_lock_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK).write_text(content)
    assert not Lock.on(tmp_path).is_held
