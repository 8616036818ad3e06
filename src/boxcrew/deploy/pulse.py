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
from contextlib import contextmanager
from typing import Protocol

EVERY = 1.0  # seconds between two signs of life
SILENCE = 25.0  # after which a replica counts as gone: with what it takes to notice, half a minute
PATIENCE = 25.0  # that a step may take however short the others were
LONGER = 10.0  # times the longest step so far that one may take
FIRST = 900.0  # that the first step may take
DONE = "done"


class Board(Protocol):
    """Where signs are left for all to see."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


class Pulse:
    """`on_loss` is told, in a thread of its own, what is wrong with which replica."""

    def __init__(self, board: Board, *, rank: int, size: int, on_loss: Callable[[str], None]) -> None:
        self._board = board
        self._rank, self._size = rank, size
        self._on_loss = on_loss
        self._count = 0
        self._busy_since: float | None = None  # None: it waits for others, or may take its time
        self._longest = 0.0
        self._heard: dict[int, tuple[str, float]] = {}  # the last sign of each, and when it came
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What is done inside the others wait for."""
        self._busy_since = time.monotonic()
        try:
            yield
        finally:
            self._rest()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For others, inside of work."""
        was_busy = self._busy_since is not None
        self._rest()
        try:
            yield
        finally:
            self._busy_since = time.monotonic() if was_busy else None

    def close(self) -> None:
        """The others need not look any more."""
        self._ended.set()
        self._thread.join(timeout=2 * EVERY)

    def _rest(self) -> None:
        since, self._busy_since = self._busy_since, None
        if since is not None:
            self._longest = max(self._longest, time.monotonic() - since)

    def _beat(self) -> None:
        while not self._ended.wait(EVERY):
            try:
                self._board.set(self._key(self._rank), self._sign())
                lost = self._look()
            except Exception as error:  # noqa: BLE001  # whatever the network says, the chief's board is gone
                lost = f"replica 0 cannot be reached: {str(error).partition(chr(10))[0]}"
            if lost is not None and not self._ended.is_set():
                self._on_loss(lost)
                return
        try:
            self._board.set(self._key(self._rank), DONE)
        except Exception:  # noqa: BLE001  # the chief has ended before us, and has no need of it
            return

    def _sign(self) -> str:
        """A count, so that each differs from the last; and for how long it has been stuck, if it is."""
        self._count += 1
        since = self._busy_since
        busy = time.monotonic() - since if since is not None else 0.0
        limit = max(PATIENCE, LONGER * self._longest) if self._longest else FIRST
        return f"{self._count} {busy:.0f}" if busy > limit else f"{self._count}"

    def _look(self) -> str | None:
        """What is wrong with one of the others, in words."""
        now = time.monotonic()
        for rank in range(self._size):
            if rank == self._rank or not self._board.check([self._key(rank)]):
                continue
            sign = self._board.get(self._key(rank)).decode()
            before, when = self._heard.get(rank, ("", now))
            if sign != before:
                self._heard[rank] = (sign, now)
            elif sign != DONE and now - when > SILENCE:
                return (
                    f"replica {rank} has not been heard of for {now - when:.0f} s: it was stopped or is gone"
                )
            _, _, stuck = sign.partition(" ")
            if stuck:
                return f"replica {rank} has been at one step for {stuck} s: it is stuck"
        return None

    @staticmethod
    def _key(rank: int) -> str:
        return f"pulse/{rank}"


def end_process(what: str) -> None:
    """At once, whatever the main thread is waiting for."""
    print(f"error: {what}", file=sys.stderr)
    print("  boxcrew resume goes on from the last checkpoint", file=sys.stderr, flush=True)
    os._exit(1)
