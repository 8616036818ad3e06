"""Whom a run that has failed blames. Real processes that are killed are in tests/integration."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from boxcrew.core.errors import BoxcrewError
from boxcrew.deploy.processes.heartbeat import MISSED, UNREACHABLE
from boxcrew.deploy.processes.launch import _tell_failure

KILLED, ENDED, ERROR = -signal.SIGKILL, -signal.SIGTERM, 1


def blamed(folder: Path, codes: dict[int, int], said: dict[int, str]) -> str:
    """Processes by rank: how they ended, and their last words."""
    for rank, text in said.items():
        place = folder / str(rank)
        place.mkdir(parents=True)
        (place / "stderr.log").write_text(f"error: {text}\n")
    failures = {
        rank: ProcessFailure(local_rank=rank, pid=1, exitcode=code, error_file="none")
        for rank, code in codes.items()
    }
    with pytest.raises(BoxcrewError) as raised:
        _tell_failure(failures, folder, num_replicas=2)
    return raised.value.message


@pytest.mark.parametrize("other", [ENDED, ERROR])
def test_one_that_was_killed_is_blamed_also_where_another_noticed_first(tmp_path: Path, other: int) -> None:
    said = {1: f"replica 0{MISSED}{UNREACHABLE}: Connection reset by peer"} if other == ERROR else {}
    message = blamed(tmp_path, {0: KILLED, 1: other}, said)
    assert message == "replica 0 was killed by SIGKILL: the run has stopped"


def test_one_that_hung_is_missed_not_killed(tmp_path: Path) -> None:
    """Who noticed has killed it."""
    said = f"replica 0{MISSED}it has not been heard of for 10 s: stopped, or gone"
    assert blamed(tmp_path, {0: KILLED, 1: ERROR}, {1: said}) == said


def test_one_that_cannot_be_reached_is_missed(tmp_path: Path) -> None:
    said = f"replica 0{MISSED}{UNREACHABLE}: Connection reset by peer"
    assert blamed(tmp_path, {1: ERROR}, {1: said}) == said
