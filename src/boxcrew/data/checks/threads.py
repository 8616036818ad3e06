"""Work on many files in threads, in order, with a report of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ProgressCallback = Callable[[int, int], None]
"""Called with (done, total) images, in the thread that asked for the work."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_chunks(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int,
    chunk_size: int,
    quick_seconds: float | None = None,
) -> Iterator[tuple[Sequence[Item], list[Result]]]:
    """Yield chunks of items with their results, in order, computed by `workers` threads.

    Threads suffice because OpenCV, hashing and file reads release the interpreter's lock. With
    `quick_seconds`, chunks are computed in the calling thread until one takes longer than that per item:
    for files that the system has in memory, threads would only get in each other's way.
    """

    def compute(chunk: Sequence[Item]) -> list[Result]:
        return [work(item) for item in chunk]

    chunks = iter([items[start : start + chunk_size] for start in range(0, len(items), chunk_size)])
    for chunk in chunks if quick_seconds is not None else ():
        begun = time.perf_counter()
        results = compute(chunk)
        is_quick = time.perf_counter() - begun < (quick_seconds or 0.0) * len(chunk)
        yield chunk, results
        if not is_quick:
            break
    rest = list(chunks)
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        yield from zip(rest, pool.map(compute, rest), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # or Ctrl-C would wait for all remaining chunks
