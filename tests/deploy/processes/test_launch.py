"""A run that has failed names the process to blame. Real processes are killed in tests/integration."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from boxcrew.deploy.processes.heartbeat import IS_LOST, UNREACHABLE
from boxcrew.deploy.processes.launch import _reason

KILLED, ENDED, ERROR = -signal.SIGKILL, -signal.SIGTERM, 1


def blamed(folder: Path, codes: dict[int, int], errors: dict[int, str]) -> str:
    """Return the message about processes with these exit codes and last errors, by rank."""
    for rank, text in errors.items():
        (folder / str(rank)).mkdir(parents=True)
        (folder / str(rank) / "stderr.log").write_text(f"error: {text}\n")
    failures = {
        rank: ProcessFailure(local_rank=rank, pid=1, exitcode=code, error_file="none")
        for rank, code in codes.items()
    }
    return _reason(failures, folder, num_replicas=2) or ""


@pytest.mark.parametrize("other", [ENDED, ERROR])
def test_one_that_was_killed_is_blamed_also_where_another_noticed_first(tmp_path: Path, other: int) -> None:
    errors = {1: f"replica 0{IS_LOST}{UNREACHABLE}: Connection reset by peer"} if other == ERROR else {}
    message = blamed(tmp_path, {0: KILLED, 1: other}, errors)
    assert message == "replica 0 was killed by SIGKILL"


def test_one_that_hung_is_lost_not_killed(tmp_path: Path) -> None:
    """The process that noticed it has killed it."""
    error = f"replica 0{IS_LOST}no heartbeat for 10 s, it was stopped or killed"
    assert blamed(tmp_path, {0: KILLED, 1: ERROR}, {1: error}) == error


def test_one_that_cannot_be_reached_is_lost(tmp_path: Path) -> None:
    error = f"replica 0{IS_LOST}{UNREACHABLE}: Connection reset by peer"
    assert blamed(tmp_path, {1: ERROR}, {1: error}) == error
