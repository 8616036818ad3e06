"""The threads that compute photos, and what ends a wait for them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine

import pytest

from boxcrew.serve.admission import Admission, Deadline
from boxcrew.serve.pool import Pool
from boxcrew.serve.refusals import RefusedError


def admission(workers: int) -> Admission:
    return Admission(workers=workers, most_photos=16, most_bytes=1)


async def never() -> None:
    await asyncio.Event().wait()


async def at_once() -> None:
    return


def soon() -> Deadline:
    return Deadline(time.perf_counter() + 20)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
@pytest.mark.parametrize("extra", [0, 1])
def test_as_many_threads_as_cores_stay_on_one_each(extra: int) -> None:
    cores = os.sched_getaffinity(0)
    workers = len(cores) + extra
    pool, together = Pool(admission(workers)), threading.Barrier(workers)

    def work() -> set[int]:
        together.wait(20)  # so that each thread has one
        return os.sched_getaffinity(0)

    found = asyncio.run(pool.compute([work] * workers, soon(), never))
    pool.close()
    if extra:
        assert found == [cores] * workers
    else:
        assert sorted(map(min, found)) == sorted(cores)
        assert all(len(each) == 1 for each in found)
    assert os.sched_getaffinity(0) == cores


def test_the_first_error_ends_the_wait_and_what_has_not_begun_never_begins() -> None:
    counted = admission(1)
    pool, release, begun = Pool(counted), threading.Event(), list[int]()

    def fail() -> None:
        raise ValueError("broken")

    def note() -> None:
        release.wait(20)
        begun.append(1)

    async def ask() -> None:
        try:
            await pool.compute([fail, note, note, note], soon(), never)
        finally:
            release.set()

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(ask())
    pool._threads.shutdown()
    assert len(begun) <= 1  # the thread may have taken one before the others were taken back
    assert (counted.num_photos, counted.num_done) == (0, 4)


@pytest.mark.parametrize(
    ("seconds", "gone", "kind"), [(0.05, never, "deadline"), (20, at_once, "client_gone")]
)
def test_nobody_waits_for_a_thread_that_is_busy(
    seconds: float, gone: Callable[[], Coroutine[None, None, None]], kind: str
) -> None:
    pool, release = Pool(admission(1)), threading.Event()

    async def ask() -> None:
        try:
            await pool.compute([lambda: release.wait(20)], Deadline(time.perf_counter() + seconds), gone)
        finally:
            release.set()

    with pytest.raises(RefusedError) as caught:
        asyncio.run(ask())
    assert caught.value.kind == kind
    pool._threads.shutdown()  # the answer that comes too late disturbs nobody
