"""Replicas whose heartbeat stops, or that hang, are noticed by the others."""

from __future__ import annotations

import threading
import time

import pytest

from boxcrew.deploy.processes import heartbeat
from boxcrew.deploy.processes.heartbeat import Heartbeat


class LocalStore:
    """A store in this process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.broken = False

    def set(self, key: str, value: str) -> None:
        if self.broken:
            raise ConnectionError("reset by peer")
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


class Watched:
    """A replica's heartbeat, and the losses it has noticed."""

    def __init__(self, store: LocalStore, rank: int, size: int = 2) -> None:
        self.noticed: list[str] = []
        self.lost = threading.Event()
        self.heartbeat = Heartbeat(store, rank=rank, size=size, num_replicas=size, on_loss=self._note)

    def _note(self, rank: int, message: str) -> None:
        assert message.startswith(f"replica {rank}")
        self.noticed.append(message)
        self.lost.set()


DEFAULTS = {name: getattr(heartbeat, name) for name in ("INTERVAL", "SILENCE", "PATIENCE")}


def test_by_default_one_that_is_gone_or_stuck_is_found_within_half_a_minute() -> None:
    assert DEFAULTS["SILENCE"] + 3 * DEFAULTS["INTERVAL"] < 30
    assert DEFAULTS["PATIENCE"] + 3 * DEFAULTS["INTERVAL"] < 30


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "INTERVAL": 0.02,
        "SILENCE": 0.4,
        "PATIENCE": 0.3,
        "FIRST_STEP": 0.6,
        "SLOWDOWN": 2.0,
        "FAILURE_GRACE": 0.1,
        "END_GRACE": 0.1,
        "SHUTDOWN": 0.1,
    }.items():
        monkeypatch.setattr(heartbeat, name, value)


def test_nothing_is_noticed_while_all_are_there() -> None:
    store = LocalStore()
    both = [Watched(store, rank) for rank in (0, 1)]
    for _ in range(5):
        with both[0].heartbeat.computing():
            time.sleep(0.05)
    with both[0].heartbeat.computing(), both[0].heartbeat.waiting():
        time.sleep(0.7)  # for somebody else
    time.sleep(0.7)  # an evaluation
    for watched in both:
        watched.heartbeat.close()
    assert [watched.noticed for watched in both] == [[], []]


def test_silence_is_noticed_but_not_of_one_that_is_done() -> None:
    store = LocalStore()
    chief, done, silent = (Watched(store, rank, size=3) for rank in range(3))
    done.heartbeat.close()
    time.sleep(0.7)
    assert chief.noticed == []
    silent.heartbeat._store = LocalStore()  # nobody reads it
    assert chief.lost.wait(3)
    assert "replica 2 is lost: no heartbeat for" in chief.noticed[0]
    silent.heartbeat.close()


def test_one_that_is_stuck_is_noticed_by_the_others() -> None:
    store = LocalStore()
    chief, other = Watched(store, 0), Watched(store, 1)
    with other.heartbeat.computing():
        time.sleep(0.1)
    with other.heartbeat.computing():
        assert chief.lost.wait(3)
    assert "replica 1 is lost: stuck in one step for" in chief.noticed[0]
    other.heartbeat.close()


def test_reading_may_take_longer_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "READING", 0.9)
    store = LocalStore()
    chief, other = Watched(store, 0), Watched(store, 1)
    with other.heartbeat.computing():
        time.sleep(0.02)
    with other.heartbeat.reading():
        assert not chief.lost.wait(0.6)
        assert chief.lost.wait(3)
    assert "replica 1 is lost: stuck reading the data of a step for" in chief.noticed[0]
    other.heartbeat.close()


def test_the_first_step_may_take_longer() -> None:
    store = LocalStore()
    chief, other = Watched(store, 0), Watched(store, 1)
    with other.heartbeat.computing():
        assert not chief.lost.wait(0.45)
        assert chief.lost.wait(3)
    other.heartbeat.close()


def test_a_store_that_cannot_be_reached_is_the_chiefs_end() -> None:
    store = LocalStore()
    other = Watched(store, 1)
    store.broken = True
    assert other.lost.wait(3)
    assert other.noticed == ["replica 0 is lost: it cannot be reached: reset by peer"]


def test_a_chief_that_stays_waits_for_the_others_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SHUTDOWN", 0.3)
    store = LocalStore()
    chief, other = Watched(store, 0), Watched(store, 1)
    start = time.monotonic()
    chief.heartbeat.close()
    assert time.monotonic() - start >= 0.3
    other.heartbeat.close()
    assert store.values == {"heartbeat/0": heartbeat.DONE, "heartbeat/1": heartbeat.DONE}


def test_the_others_are_told_why_one_failed() -> None:
    store = LocalStore()
    chief, other = Watched(store, 0), Watched(store, 1)
    other.heartbeat.report_failure("no more paper")
    other.heartbeat.close()
    assert chief.lost.wait(3)
    assert chief.noticed == ["replica 1 failed: no more paper"]


def test_one_that_never_had_a_heartbeat_is_lost_too() -> None:
    chief = Watched(LocalStore(), 0)
    assert chief.lost.wait(3)
    assert "replica 1 is lost: no heartbeat for" in chief.noticed[0]


def test_a_store_that_does_not_answer_is_the_chiefs_silence() -> None:
    """The process that runs the store was stopped: every request waits."""
    store = LocalStore()
    stopped = threading.Event()
    other = Watched(store, 1)
    store.check = lambda keys: not stopped.wait(5)  # type: ignore[method-assign]
    assert other.lost.wait(3)
    assert "replica 0 is lost: no heartbeat for" in other.noticed[0]
    stopped.set()
    other.heartbeat.close()
