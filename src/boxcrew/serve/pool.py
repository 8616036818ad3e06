"""Threads that decode photos and compute networks. Both release the interpreter, so that the photos of one
thread are decoded while the network of another is computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from boxcrew.serve.admission import Admission, Deadline, late
from boxcrew.serve.uploads import client_gone

_UNWATCHED = 0.05  # seconds in which most photos are answered: only for others, the client is watched
_T = TypeVar("_T")


class Pool:
    """So many threads, each with one photo at a time; networks take one thread each."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._threads = ThreadPoolExecutor(
            admission.workers, thread_name_prefix="photo", initializer=_spread(admission.workers)
        )

    async def compute(
        self, works: Sequence[Callable[[], _T]], deadline: Deadline, gone: Callable[[], Awaitable[None]]
    ) -> list[_T]:
        """Return the results of functions that are called in the threads, all before the deadline. `gone`
        is called if it takes a while, and returns when the client waits no more. Functions that have not
        started then, or when one fails, never start.
        """
        self._admission.add_photos(len(works))
        outcome = _Outcome(len(works))
        timers = [
            outcome.loop.call_later(deadline.remaining(), outcome.expire),
            outcome.loop.call_later(_UNWATCHED, outcome.watch, gone),
        ]
        futures = [self._submit(work, outcome) for work in works]
        try:
            await outcome.ended
            return [future.result() for future in futures]
        finally:
            for timer in timers:
                timer.cancel()
            for watch in outcome.watches:
                watch.cancel()
            for future in futures:
                future.cancel()

    async def run(self, function: Callable[[], _T]) -> _T:
        """Return the result of a function that may take long, called in a thread of its own."""
        return await asyncio.to_thread(function)

    def close(self) -> None:
        """Let the threads end; what waits is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], _T], outcome: _Outcome) -> Future[_T]:
        start: list[float] = []

        def timed() -> _T:
            start.append(time.perf_counter())
            return work()

        def done(future: Future[_T]) -> None:
            self._admission.remove_photo(time.perf_counter() - start[0] if start else None)
            if not future.cancelled():
                outcome.tell(future.exception())

        future = self._threads.submit(timed)
        future.add_done_callback(done)
        return future


class _Outcome:
    """The end of the wait for the photos of a request. `ended` has a result as soon as all are computed, or
    an error as soon as one has failed.
    """

    def __init__(self, num: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.watches: list[asyncio.Future[None]] = []
        self._num_left = num

    def tell(self, error: BaseException | None) -> None:
        """Count a photo that is computed, or has failed; called by its thread."""
        with contextlib.suppress(RuntimeError):  # the service has ended without it
            self.loop.call_soon_threadsafe(self._count, error)

    def expire(self) -> None:
        """End because the deadline has passed."""
        self._fail(late())

    def watch(self, gone: Callable[[], Awaitable[None]]) -> None:
        """End as soon as the client has gone."""
        watch = asyncio.ensure_future(gone())
        watch.add_done_callback(self._leave)
        self.watches.append(watch)

    def _leave(self, watch: asyncio.Future[None]) -> None:
        if not watch.cancelled():
            self._fail(watch.exception() or client_gone())

    def _count(self, error: BaseException | None) -> None:
        self._num_left -= 1
        if error is not None:
            self._fail(error)
        elif self._num_left == 0 and not self.ended.done():
            self.ended.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)


def _spread(workers: int) -> Callable[[], None]:
    """Return what each thread of a pool calls first. Of as many threads as there are cores, each stays on one
    of its own: systems that see no cache which their cores share leave all of them where the first one is.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    left = iter(cores if len(cores) == workers else ())

    def pin() -> None:
        core = next(left, None)
        if core is not None:
            with contextlib.suppress(OSError):  # it may be forbidden, and is only a matter of speed
                os.sched_setaffinity(0, {core})

    return pin
