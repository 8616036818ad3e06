"""Decides who is let in: how many photos may wait, how many bytes are held, until when an answer is due."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from boxcrew.serve.refusals import RefusedError

_MOST_WAIT = 30  # seconds that a client is asked to wait, at most
_SMOOTHING = 0.05  # weight of the newest photo in the mean time of a photo


@dataclass(frozen=True)
class Deadline:
    """The moment until when a request is answered, counted from its arrival."""

    at: float  # time.perf_counter()

    def remaining(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self.at - time.perf_counter())

    def overdue(self) -> float:
        """Return the seconds since the moment, at least 0."""
        return max(0.0, time.perf_counter() - self.at)

    def require(self) -> None:
        """Raise an error if the moment has passed."""
        if time.perf_counter() >= self.at:
            raise late()


def late() -> RefusedError:
    """Return the error of an answer that would come too late."""
    return RefusedError(
        504,
        "deadline",
        "there was no time to answer",
        advice="send fewer photos at once, or ask for more time with X-Timeout: SECONDS",
    )


class Admission:
    """Counts what the service has taken on. Photos are those that wait for a thread or are in one; requests
    those that were accepted and not answered; bytes those of photos that were read.
    """

    def __init__(self, *, workers: int, most_photos: int, most_bytes: int) -> None:
        self.workers, self.most_photos, self.most_bytes = workers, most_photos, most_bytes
        self.num_photos = self.num_requests = self.num_bytes = 0
        self.num_done = 0  # photos that have left their threads, ever
        self.is_draining = False
        self._photo_seconds = 0.05
        self._lock = threading.Lock()  # photos are counted by their threads

    def require_open(self) -> None:
        """Refuse a new request while the service ends, or when nothing more can wait."""
        if self.is_draining:
            raise RefusedError(
                503, "not_ready", "the service is ending", advice="ask again", headers={"Retry-After": "1"}
            )
        if self.num_photos >= self.most_photos:
            raise self._busy()

    @contextlib.contextmanager
    def request(self) -> Iterator[RequestBytes]:
        """Count a request until it is answered, and the bytes that it holds."""
        held = RequestBytes(self)
        self.num_requests += 1
        try:
            yield held
        finally:
            self.num_requests -= 1
            self.num_bytes -= held.num_bytes

    def add_photos(self, num: int) -> None:
        """Take on photos, all or none. A request with more of them than may wait is taken by an idle
        service.
        """
        with self._lock:
            if self.num_photos and self.num_photos + num > self.most_photos:
                raise self._busy()
            self.num_photos += num

    def remove_photo(self, seconds: float | None) -> None:
        """Count a photo as done, after so many seconds in its thread; None if it never began."""
        with self._lock:
            self.num_photos -= 1
            self.num_done += 1
            if seconds is not None:
                self._photo_seconds += _SMOOTHING * (seconds - self._photo_seconds)

    def busy_bytes(self) -> RefusedError:
        """Return the error of a request for whose bytes there is no room at present."""
        return self._busy()

    def _busy(self) -> RefusedError:
        wait = self.num_photos * self._photo_seconds / self.workers
        seconds = min(_MOST_WAIT, max(1, math.ceil(wait)))
        return RefusedError(
            429,
            "busy",
            "too many photos wait already",
            advice=f"ask again in {seconds} s",
            headers={"Retry-After": str(seconds)},
        )


class RequestBytes:
    """The bytes that one request holds."""

    def __init__(self, admission: Admission) -> None:
        self.num_bytes = 0
        self._admission = admission

    def add(self, num: int) -> None:
        """Count bytes that were read; an error if the service holds too many."""
        if self._admission.num_bytes + num > self._admission.most_bytes:
            raise self._admission.busy_bytes()
        self._admission.num_bytes += num
        self.num_bytes += num
