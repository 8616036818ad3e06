"""Who of the replicas is still there: each says so regularly, and looks at the others.

torch's own time limits are for messages, and have to be long: a chief that evaluates keeps the others
waiting. A process that was stopped, or a host that is gone, shows in its silence; one that is stuck, in
computing much longer than it ever did.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from boxcrew.deploy.processes.environments import process_name

EVERY = 1.0  # seconds between two signs of life
SILENCE = 25.0  # after which a replica counts as gone: with what it takes to notice, half a minute
PATIENCE = 25.0  # that a step may take however short the others were
LONGER = 10.0  # times the longest step so far that one may take
FIRST = 900.0  # that the first step may take
READING = 600.0  # that the data of a step may take
LAST_WORDS = 3.0  # that one who failed has to say why and to end: who started us is to see it end before us
GOODBYE = 10.0  # that the chief waits for the others to end
DONE = "done"
FAILED = "failed: "  # and why
MISSED = " is missed: "  # in all that is told of one that is gone or stuck
UNREACHABLE = "it cannot be reached"  # of one whose connections are broken
LOST = (RuntimeError, OSError)  # what stores and messages raise where their other end is gone


class HeartbeatStore(Protocol):
    """Where signs are left for all to see. It is the chief's: where that is gone, so is the board."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


class Heartbeat:
    """`on_loss` is told, in a thread of its own, which process is lost and, in words, what is wrong with it.
    The first `num_replicas` of them are replicas, and have steps to get stuck at.
    """

    def __init__(
        self,
        board: HeartbeatStore,
        *,
        rank: int,
        size: int,
        num_replicas: int,
        on_loss: Callable[[int, str], None],
    ) -> None:
        self._board = board
        self._rank = rank
        self._num_replicas = num_replicas
        self._others = [other for other in range(size) if other != rank]
        self._on_loss = on_loss
        self._count = 0
        self._busy_since: float | None = None  # None: it waits for others, or may take its time
        self._is_reading = False
        self._failed: str | None = None  # why
        self._segment = 0.0  # the longest stretch of the step at hand
        self._longest = 0.0  # of the steps before
        self._heard = dict.fromkeys(self._others, "")  # the last sign of each
        self._silent = dict.fromkeys(self._others, 0)  # our own rounds since
        self._round_at = time.monotonic()  # when we last had looked at all
        self._ended = threading.Event()
        board.set(self._key(rank), self._sign())
        self._threads = [
            threading.Thread(target=work, name="pulse", daemon=True) for work in (self._beat, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """What is done inside the others wait for."""
        self._segment, self._busy_since = 0.0, time.monotonic()
        try:
            yield
        finally:
            self._rest()
            self._longest = max(self._longest, self._segment)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The data of a step, which the others wait for too, but which may take its time now and then."""
        self._is_reading, self._busy_since = True, time.monotonic()
        try:
            yield
        finally:
            self._is_reading, self._busy_since = False, None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For others, inside of work."""
        was_busy = self._busy_since is not None
        self._rest()
        try:
            yield
        finally:
            self._busy_since = time.monotonic() if was_busy else None

    def report_failure(self, why: str) -> None:
        """From now on, that is this one's sign."""
        self._failed = why
        with suppress(*LOST):  # the chief, whose the board is, may be gone already
            self._board.set(self._key(self._rank), self._sign())

    def failed(self) -> str | None:
        """Who of the others has failed, and why, in words."""
        for rank in self._others:
            with suppress(*LOST):
                sign = self._seen(rank)
                if sign.startswith(FAILED):
                    return f"{process_name(rank, self._num_replicas)} {sign}"
        return None

    def close(self) -> None:
        """The others need not look any more, unless this one has failed. A chief that has not stays until
        they have ended, or for a moment: they would take its end for a failure.
        """
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=2 * EVERY)
        with suppress(*LOST):  # the chief may have ended before us, and need not know
            self._board.set(self._key(self._rank), DONE if self._failed is None else self._sign())
            end = time.monotonic() + GOODBYE
            stays = self._failed is None and self._rank == 0
            while stays and time.monotonic() < end and not self._all_done():
                time.sleep(EVERY / 10)

    def _all_done(self) -> bool:
        return all(self._board.get(self._key(other)) == DONE.encode() for other in self._others)

    def _rest(self) -> None:
        since, self._busy_since = self._busy_since, None
        if since is not None:
            self._segment = max(self._segment, time.monotonic() - since)

    def _beat(self) -> None:
        while not self._ended.wait(EVERY):
            try:
                self._board.set(self._key(self._rank), self._sign())
                lost = self._look()
                if lost is not None and MISSED not in lost[1]:
                    self._ended.wait(LAST_WORDS)  # the main thread may come by it, and say more
            except LOST as error:
                lost = 0, f"replica 0{MISSED}{UNREACHABLE}: {str(error).partition(chr(10))[0]}"
                self._ended.wait(LAST_WORDS)
            self._round_at = time.monotonic()
            if lost is not None and not self._ended.is_set():
                self._on_loss(*lost)
                return

    def _watch(self) -> None:
        """Looks after the other thread: a board whose process was stopped lets it wait for ever."""
        while not self._ended.wait(EVERY):
            if time.monotonic() - self._round_at > SILENCE:
                self._on_loss(
                    0, f"replica 0{MISSED}it has not been heard of for {SILENCE:.0f} s: stopped, or gone"
                )
                return

    def _sign(self) -> str:
        """A count, so that each differs from the last; and for how long it has been stuck, if it is."""
        if self._failed is not None:
            return f"{FAILED}{self._failed}"
        self._count += 1
        since = self._busy_since
        busy = time.monotonic() - since if since is not None else 0.0
        limit = max(PATIENCE, LONGER * self._longest) if self._longest else FIRST
        if busy <= (READING if self._is_reading else limit):
            return f"{self._count}"
        doing = "reading the data of a step" if self._is_reading else "at one step"
        return f"{self._count} {doing} for {busy:.0f} s"

    def _look(self) -> tuple[int, str] | None:
        """One of the others, and what is wrong with it. Silence is counted in rounds of our own: if we were
        stopped for a while ourselves, nobody else was silent.
        """
        for rank in self._others:
            sign = self._seen(rank)
            if sign.startswith(FAILED):
                return rank, f"{process_name(rank, self._num_replicas)} {sign}"
            self._silent[rank] = 0 if sign != self._heard[rank] else self._silent[rank] + 1
            self._heard[rank] = sign
            silent = self._silent[rank] * EVERY
            if sign != DONE and silent > SILENCE:
                name = process_name(rank, self._num_replicas)
                return rank, f"{name}{MISSED}it has not been heard of for {silent:.0f} s: stopped, or gone"
            _, _, stuck = sign.partition(" ")
            if stuck:
                return rank, f"replica {rank}{MISSED}it has been {stuck}"
        return None

    def _seen(self, rank: int) -> str:
        return self._board.get(self._key(rank)).decode() if self._board.check([self._key(rank)]) else ""

    @staticmethod
    def _key(rank: int) -> str:
        return f"pulse/{rank}"


def end_process(what: str) -> None:
    """At once, whatever the main thread is waiting for."""
    print(f"error: {what}", file=sys.stderr)
    print("  boxcrew resume goes on from the last checkpoint", file=sys.stderr, flush=True)
    os._exit(1)
