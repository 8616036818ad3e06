"""A run directory of another host: refused while its process lives, taken over when it does not.

The other host is a process with another host name. The times are parts of a second here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.files import append, write_json
from boxcrew.core.lock_owner import LEASE, LOCK, Owner, owner_of
from boxcrew.train.loop.checkpoint import Checkpoint, write_checkpoint
from boxcrew.train.run import lease
from boxcrew.train.run.lock import locked

ELSEWHERE = "elsewhere"
CHECKPOINT = Checkpoint(step=7, tensors={"task/a": torch.ones(2)}, state={})


def nowhere(text: str) -> None: ...


WRITERS: dict[str, Callable[[Path], object]] = {
    "status": lambda folder: write_json(folder / "status.json", {}),
    "metrics": lambda folder: append(folder / "metrics.jsonl", "late\n"),
    "checkpoint": lambda folder: write_checkpoint(folder / "1-stage" / "checkpoints", CHECKPOINT),
}


class Elsewhere:
    """A process on another host, which holds the lock of a directory and writes there when told to."""

    def __init__(self, folder: Path) -> None:
        (ask, self._asked), (self._answered, answer) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._asked)
            socket.gethostname = lambda: ELSEWHERE
            lease.RENEWAL = 0.05
            with locked(folder, nowhere):
                os.write(answer, b"h")
                while os.read(ask, 1):
                    os.write(answer, b"".join(_tried(write, folder) for write in WRITERS.values()))
            os._exit(0)
        os.close(ask)
        assert os.read(self._answered, 1) == b"h"

    def write(self) -> str:
        """Let it write each kind of file; return a letter for each: `w` if it has, `l` if it was too late."""
        os.write(self._asked, b"w")
        return os.read(self._answered, len(WRITERS)).decode()

    def end(self) -> None:
        os.close(self._asked)
        os.kill(self.pid, signal.SIGCONT)
        os.waitpid(self.pid, 0)


def _tried(write: Callable[[Path], object], folder: Path) -> bytes:
    try:
        write(folder)
    except BoxcrewError as error:
        return b"l" if "nothing more is written" in error.message else b"?"
    except BaseException as error:  # noqa: BLE001 - shown by the test
        sys.stderr.write(repr(error))
        return b"!"
    return b"w"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    process = Elsewhere(tmp_path)
    yield process
    process.end()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "EXPIRY", 1.0)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.01)


def test_a_living_process_elsewhere_is_refused(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with pytest.raises(UsageError, match=f"process {elsewhere.pid} on elsewhere"), locked(tmp_path, nowhere):
        pytest.fail("two owners")
    assert elsewhere.write() == "www"


def test_one_that_wakes_up_late_writes_nothing(tmp_path: Path, elsewhere: Elsewhere) -> None:
    """Neither while another has the directory, nor when that has ended."""
    os.kill(elsewhere.pid, signal.SIGSTOP)
    said: list[str] = []
    with locked(tmp_path, said.append):
        owner = owner_of(tmp_path)
        os.kill(elsewhere.pid, signal.SIGCONT)
        assert elsewhere.write() == "lll"
        assert owner_of(tmp_path) == owner
    assert elsewhere.write() == "lll"
    assert [path.name for path in tmp_path.iterdir()] == [LEASE], "which tells it so"
    assert "waiting for a sign of life" in said[0]
    assert f"process {elsewhere.pid} on elsewhere gives no sign of life; its lock is taken over" in said[1]


def test_a_lost_hosts_lock_is_taken_over(tmp_path: Path) -> None:
    """Each time with a new generation; one that has died here does not count."""
    generations = []
    for owner in (replace(Owner.me(), host=ELSEWHERE), replace(Owner.me(), born="1")) * 2:
        (tmp_path / LOCK).write_text(json.dumps(asdict(owner)))
        with locked(tmp_path, nowhere):
            terms = lease.read_terms(tmp_path)
            generations.append(terms.generation if terms is not None else 0)
    assert generations == [2, 2, 3, 3]


def test_a_lease_ends_with_its_process(tmp_path: Path) -> None:
    with locked(tmp_path / "run", nowhere):
        assert (tmp_path / "run" / LEASE).is_file()
        write_json(tmp_path / "run" / "status.json", {})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["status.json"]
    write_json(tmp_path / "run" / "status.json", {})


def test_files_that_were_removed_by_hand_end_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWAL", 0.01)
    with locked(tmp_path, nowhere):
        (tmp_path / LEASE).unlink()
        write_json(tmp_path / "status.json", {})
        (tmp_path / LOCK).unlink()
        write_json(tmp_path / "status.json", {})
