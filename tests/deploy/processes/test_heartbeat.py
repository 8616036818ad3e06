"""Replicas that fall silent or get stuck are noticed by the others."""

from __future__ import annotations

import threading
import time

import pytest

from boxcrew.deploy.processes import heartbeat as pulse
from boxcrew.deploy.processes.heartbeat import Heartbeat


class Shared:
    """A board in this process."""

    def __init__(self) -> None:
        self.signs: dict[str, str] = {}
        self.broken = False

    def set(self, key: str, value: str) -> None:
        if self.broken:
            raise ConnectionError("reset by peer")
        self.signs[key] = value

    def get(self, key: str) -> bytes:
        return self.signs[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.signs for key in keys)


class Watched:
    """A replica's pulse, and what it has noticed."""

    def __init__(self, board: Shared, rank: int, size: int = 2) -> None:
        self.noticed: list[str] = []
        self.told = threading.Event()
        self.pulse = Heartbeat(board, rank=rank, size=size, num_replicas=size, on_loss=self._note)

    def _note(self, rank: int, what: str) -> None:
        assert what.startswith(f"replica {rank}")
        self.noticed.append(what)
        self.told.set()


SLOWLY = {name: getattr(pulse, name) for name in ("EVERY", "SILENCE", "PATIENCE")}


def test_by_default_one_that_is_gone_or_stuck_is_found_within_half_a_minute() -> None:
    assert SLOWLY["SILENCE"] + 3 * SLOWLY["EVERY"] < 30
    assert SLOWLY["PATIENCE"] + 3 * SLOWLY["EVERY"] < 30


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "EVERY": 0.02,
        "SILENCE": 0.4,
        "PATIENCE": 0.3,
        "FIRST": 0.6,
        "LONGER": 2.0,
        "LAST_WORDS": 0.1,
        "GOODBYE": 0.1,
    }.items():
        monkeypatch.setattr(pulse, name, value)


def test_as_long_as_all_are_there_nothing_is_said() -> None:
    board = Shared()
    both = [Watched(board, rank) for rank in (0, 1)]
    for _ in range(5):
        with both[0].pulse.computing():
            time.sleep(0.05)
    with both[0].pulse.computing(), both[0].pulse.waiting():
        time.sleep(0.7)  # for somebody else
    time.sleep(0.7)  # an evaluation
    for one in both:
        one.pulse.close()
    assert [one.noticed for one in both] == [[], []]


def test_silence_is_noticed_but_not_of_one_that_is_done() -> None:
    board = Shared()
    chief, done, silent = (Watched(board, rank, size=3) for rank in range(3))
    done.pulse.close()
    time.sleep(0.7)
    assert chief.noticed == []
    silent.pulse._board = Shared()  # what it says is heard by nobody
    assert chief.told.wait(3)
    assert "replica 2 is missed: it has not been heard of" in chief.noticed[0]
    silent.pulse.close()


def test_one_that_is_stuck_is_noticed_by_the_others() -> None:
    board = Shared()
    chief, other = Watched(board, 0), Watched(board, 1)
    with other.pulse.computing():
        time.sleep(0.1)
    with other.pulse.computing():
        assert chief.told.wait(3)
    assert "replica 1 is missed: it has been at one step for" in chief.noticed[0]
    other.pulse.close()


def test_reading_may_take_longer_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "READING", 0.9)
    board = Shared()
    chief, other = Watched(board, 0), Watched(board, 1)
    with other.pulse.computing():
        time.sleep(0.02)
    with other.pulse.reading():
        assert not chief.told.wait(0.6)
        assert chief.told.wait(3)
    assert "replica 1 is missed: it has been reading the data of a step for" in chief.noticed[0]
    other.pulse.close()


def test_the_first_step_may_take_longer() -> None:
    board = Shared()
    chief, other = Watched(board, 0), Watched(board, 1)
    with other.pulse.computing():
        assert not chief.told.wait(0.45)
        assert chief.told.wait(3)
    other.pulse.close()


def test_a_board_that_cannot_be_reached_is_the_chiefs_end() -> None:
    board = Shared()
    other = Watched(board, 1)
    board.broken = True
    assert other.told.wait(3)
    assert other.noticed == ["replica 0 is missed: it cannot be reached: reset by peer"]


def test_a_chief_that_stays_waits_for_the_others_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "GOODBYE", 0.3)
    board = Shared()
    chief, other = Watched(board, 0), Watched(board, 1)
    begun = time.monotonic()
    chief.pulse.close()
    assert time.monotonic() - begun >= 0.3
    other.pulse.close()
    assert board.signs == {"pulse/0": pulse.DONE, "pulse/1": pulse.DONE}


def test_who_fails_says_why_and_the_others_hear_it() -> None:
    board = Shared()
    chief, other = Watched(board, 0), Watched(board, 1)
    other.pulse.report_failure("no more paper")
    other.pulse.close()
    assert chief.told.wait(3)
    assert chief.noticed == ["replica 1 failed: no more paper"]


def test_one_that_never_gave_a_sign_is_missed_too() -> None:
    chief = Watched(Shared(), 0)
    assert chief.told.wait(3)
    assert "replica 1 is missed: it has not been heard of" in chief.noticed[0]


def test_a_board_that_answers_no_more_is_the_chiefs_silence() -> None:
    """As when its process was stopped: who asks waits."""
    board = Shared()
    stopped = threading.Event()
    other = Watched(board, 1)
    board.check = lambda keys: not stopped.wait(5)  # type: ignore[method-assign]
    assert other.told.wait(3)
    assert "replica 0 is missed: it has not been heard of" in other.noticed[0]
    stopped.set()
    other.pulse.close()
