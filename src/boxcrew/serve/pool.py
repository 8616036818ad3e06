"""Threads that decode photos and compute networks. Both release the interpreter, so that the photos of one
thread are decoded while the network of another is computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from boxcrew.serve.admission import Admission, Deadline, late
from boxcrew.serve.uploads import client_gone

_T = TypeVar("_T")


class Pool:
    """So many threads, each with one photo at a time; networks take one thread each."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._threads = ThreadPoolExecutor(admission.workers, thread_name_prefix="photo")

    async def compute(
        self, works: Sequence[Callable[[], _T]], deadline: Deadline, gone: Awaitable[None]
    ) -> list[_T]:
        """Return the results of functions that are called in the threads, all before the deadline. `gone`
        returns when the client waits no more. What has not begun then, or when one fails, never begins.
        """
        self._admission.add_photos(len(works))
        futures = [self._submit(work) for work in works]
        watch = asyncio.ensure_future(gone)
        try:
            waiting = {asyncio.ensure_future(asyncio.wrap_future(future)) for future in futures}
            await _first_problem(waiting, watch, deadline)
            return [future.result() for future in futures]
        finally:
            watch.cancel()
            for future in futures:
                future.cancel()

    async def run(self, function: Callable[[], _T]) -> _T:
        """Return the result of a function that may take long, called in a thread of its own."""
        return await asyncio.to_thread(function)

    def close(self) -> None:
        """Let the threads end; what waits is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], _T]) -> Future[_T]:
        begun: list[float] = []

        def timed() -> _T:
            begun.append(time.perf_counter())
            return work()

        def done(_: Future[_T]) -> None:
            self._admission.remove_photo(time.perf_counter() - begun[0] if begun else None)

        future = self._threads.submit(timed)
        future.add_done_callback(done)
        return future


async def _first_problem(
    waiting: set[asyncio.Future[_T]], watch: asyncio.Future[None], deadline: Deadline
) -> None:
    """Wait until all results are there; raise an error as soon as one fails, the client has gone, or the
    deadline passes.
    """
    everything = asyncio.ensure_future(asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION))
    try:
        both: set[asyncio.Future[Any]] = {everything, watch}
        done, _ = await asyncio.wait(both, timeout=deadline.remaining(), return_when=asyncio.FIRST_COMPLETED)
        if everything in done:
            for each in waiting:
                if each.done():
                    each.result()
            return
        raise client_gone() if watch in done else late()
    finally:
        everything.cancel()
        for each in waiting:
            each.cancel()
            with contextlib.suppress(BaseException):
                if each.done():
                    each.exception()  # asyncio complains about errors that nobody has looked at
