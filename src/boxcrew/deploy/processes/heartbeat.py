"""Heartbeats: every process writes one regularly to a common store, and watches those of the others.

torch's own time limits are for single messages, and must be long because the others wait while the chief
evaluates. A process that was stopped, or whose host is gone, shows by its missing heartbeat; one that hangs,
by computing much longer than it ever did.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from boxcrew.deploy.processes.environments import process_name

# All in seconds.
INTERVAL = 1.0  # between two heartbeats
SHORT_SILENCE = 4.0  # of one on another host, if a connection to it or others is broken
SILENCE = 25.0  # without a heartbeat, until a process counts as lost: noticed within half a minute
PATIENCE = 25.0  # that any step may take, however short the others were
FIRST_STEP = 900.0  # that the first step may take
READING = 600.0  # that reading the data of a step may take
FAILURE_GRACE = 3.0  # seconds for a failed process to say why
END_GRACE = 10.0  # seconds for it to end, also on a busy machine: the launcher must see it end first
SHUTDOWN = 10.0  # that the chief waits for the others to end

SLOWDOWN = 10.0  # times the longest step so far that a step may take
DONE = "done"
FAILED = "failed: "  # followed by the reason
IS_LOST = " is lost: "  # in every message about a process that is gone or hangs
UNREACHABLE = "it cannot be reached"  # in messages about broken connections
CONNECTION_ERRORS = (RuntimeError, OSError)  # of stores and messages whose other end is gone
RESUME_ADVICE = "boxcrew resume continues from the last checkpoint"


OnLoss = Callable[[int, str], None]


class HeartbeatStore(Protocol):
    """The store that all processes write heartbeats to. The chief runs it: it ends with the chief."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


class Watch:
    """A watch over the heartbeats of processes: it finds those that have failed, are silent or hang."""

    def __init__(self, store: HeartbeatStore, num_replicas: int) -> None:
        self._store = store
        self._num_replicas = num_replicas
        self._last_beats: dict[int, str] = {}
        self._silent: dict[int, int] = {}  # the watcher's rounds since the last heartbeat of each

    def find_lost(self, ranks: Iterable[int]) -> tuple[int, str] | None:
        """Return the rank of a process that is lost, and why. To be called every INTERVAL seconds."""
        for rank in ranks:
            beat = self.beat_of(rank)
            if beat.startswith(FAILED):
                return rank, f"{process_name(rank, self._num_replicas)} {beat}"
            # In rounds of our own: while we were stopped ourselves, nobody else was silent.
            is_silent = beat == self._last_beats.get(rank, "")
            self._silent[rank] = self._silent.get(rank, 0) + 1 if is_silent else 0
            self._last_beats[rank] = beat
            seconds = self._silent[rank] * INTERVAL
            if beat != DONE and seconds > SILENCE:
                return rank, self.silence(rank, seconds)
            _, _, stuck = beat.partition(" ")
            if stuck:
                return rank, f"replica {rank}{IS_LOST}{stuck}"
        return None

    def silent_for(self, rank: int) -> float:
        """Return the seconds since the last heartbeat of a process, as far as `find_lost` has looked."""
        return self._silent.get(rank, 0) * INTERVAL

    def silence(self, rank: int, seconds: float) -> str:
        """Return the message about a process that was not heard of for so long."""
        name = process_name(rank, self._num_replicas)
        return f"{name}{IS_LOST}no heartbeat for {seconds:.0f} s, it was stopped or killed"

    def beat_of(self, rank: int) -> str:
        """Return the last heartbeat of a process; empty if it had none yet."""
        return self._store.get(key_of(rank)).decode() if self._store.check([key_of(rank)]) else ""


def key_of(rank: int) -> str:
    """Return the key of a process's heartbeat in the store."""
    return f"heartbeat/{rank}"


class Heartbeat:
    """The heartbeat of this process, and a watch over all others.

    `on_loss(rank, message)` is called in a thread of its own when another process has failed, is silent or
    hangs. The first `num_replicas` ranks are replicas, the others parameter servers. With `watches=False` the
    launcher watches over all.
    """

    def __init__(
        self,
        store: HeartbeatStore,
        rank: int,
        size: int,
        *,
        num_replicas: int,
        on_loss: OnLoss,
        watches: bool = True,
    ) -> None:
        self._store = store
        self._rank = rank
        self._num_replicas = num_replicas
        self._others = [other for other in range(size) if other != rank and watches]
        self._others_watch = Watch(store, num_replicas)
        self._on_loss = on_loss
        self._count = 0
        self._busy_since: float | None = None  # None: it waits for others, or may take its time
        self._is_reading = False
        self._failure: str | None = None
        self._segment = 0.0  # seconds: the longest stretch of the current step without waiting
        self._longest = 0.0  # seconds: of all steps before
        self._checked_at = time.monotonic()
        self._ended = threading.Event()
        store.set(key_of(rank), self._next_beat())
        works = (self._run, self._watch)
        self._threads = [threading.Thread(target=work, name="heartbeat", daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Mark the inside as a step the others wait for: it must not take much longer than any before."""
        self._segment, self._busy_since = 0.0, time.monotonic()
        try:
            yield
        finally:
            self._pause()
            self._longest = max(self._longest, self._segment)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Mark the inside as reading data, which the others wait for too, but which may take READING."""
        self._is_reading, self._busy_since = True, time.monotonic()
        try:
            yield
        finally:
            self._is_reading, self._busy_since = False, None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the inside as waiting for others: it does not count as computing."""
        was_busy = self._busy_since is not None
        self._pause()
        try:
            yield
        finally:
            self._busy_since = time.monotonic() if was_busy else None

    def report_failure(self, why: str) -> None:
        """Tell the others that this process has failed; from now on that is its heartbeat."""
        self._failure = why
        with suppress(*CONNECTION_ERRORS):  # the chief, who runs the store, may be gone already
            self._store.set(key_of(self._rank), self._next_beat())

    def find_failed(self) -> str | None:
        """Wait for another process to report a failure; return which, and why, or None if none does."""
        begun = time.monotonic()
        while time.monotonic() < begun + FAILURE_GRACE:
            for rank in self._others:
                with suppress(*CONNECTION_ERRORS):
                    beat = self._others_watch.beat_of(rank)
                    if beat.startswith(FAILED):
                        time.sleep(max(0.0, begun + END_GRACE - time.monotonic()))
                        return f"{process_name(rank, self._num_replicas)} {beat}"
            time.sleep(0.05)
        return None

    def close(self) -> None:
        """Stop, and tell the others that this process is done, unless it has failed. A chief that has not
        failed stays until they are done, at most SHUTDOWN: they would take its end for a failure.
        """
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=2 * INTERVAL)
        with suppress(*CONNECTION_ERRORS):  # the chief may have ended before us
            self._store.set(key_of(self._rank), DONE if self._failure is None else self._next_beat())
            end = time.monotonic() + (SHUTDOWN if self._failure is None and self._rank == 0 else 0)
            while time.monotonic() < end and any(
                self._others_watch.beat_of(rank) != DONE for rank in self._others
            ):
                time.sleep(INTERVAL / 10)

    def _pause(self) -> None:
        since, self._busy_since = self._busy_since, None
        if since is not None:
            self._segment = max(self._segment, time.monotonic() - since)

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            try:
                self._store.set(key_of(self._rank), self._next_beat())
                lost = self._others_watch.find_lost(self._others)
                if lost is not None and IS_LOST not in lost[1]:
                    self._ended.wait(END_GRACE)  # the main thread may meet the failure, and say more
            except CONNECTION_ERRORS as error:
                lost = 0, f"replica 0{IS_LOST}{UNREACHABLE}: {str(error).partition(chr(10))[0]}"
                self._ended.wait(FAILURE_GRACE)
            self._checked_at = time.monotonic()
            if lost is not None and not self._ended.is_set():
                self._on_loss(*lost)
                return

    def _watch(self) -> None:
        """Watch over the other thread, which waits forever if the process that runs the store was stopped."""
        while not self._ended.wait(INTERVAL):
            if time.monotonic() - self._checked_at > SILENCE:
                self._on_loss(0, self._others_watch.silence(0, SILENCE))
                return

    def _next_beat(self) -> str:
        """Return a count, so that each heartbeat differs, and how long this process is stuck, if it is."""
        if self._failure is not None:
            return f"{FAILED}{self._failure}"
        self._count += 1
        since = self._busy_since
        busy = time.monotonic() - since if since is not None else 0.0
        limit = max(PATIENCE, SLOWDOWN * self._longest) if self._longest else FIRST_STEP
        if busy <= (READING if self._is_reading else limit):
            return f"{self._count}"
        activity = "reading the data of a step" if self._is_reading else "in one step"
        return f"{self._count} stuck {activity} for {busy:.0f} s"
