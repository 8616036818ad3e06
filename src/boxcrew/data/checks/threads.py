"""Work on many files in threads, in order, with a report of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ProgressCallback = Callable[[int, int], None]
"""Called with (done, total) images, in the thread that asked for the work."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int,
    chunk_size: int,
    quick_seconds: float | None = None,
    progress: ProgressCallback | None = None,
) -> list[Result]:
    """Return the results of all items, in order, computed by `workers` threads in chunks: OpenCV, hashing and
    file reads release the interpreter's lock. With `quick_seconds`, chunks are computed in the calling thread
    until one takes longer than that per item: for files that the system has in memory, threads would only get
    in each other's way.
    """
    results: list[Result] = []

    def compute(chunk: Sequence[Item]) -> list[Result]:
        return [work(item) for item in chunk]

    def add(computed: list[Result]) -> None:
        results.extend(computed)
        if progress:
            progress(len(results), len(items))

    chunks = iter([items[start : start + chunk_size] for start in range(0, len(items), chunk_size)])
    for chunk in chunks if quick_seconds is not None else ():
        first = time.perf_counter()
        add(compute(chunk))
        if time.perf_counter() - first >= (quick_seconds or 0.0) * len(chunk):
            break
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        for computed in pool.map(compute, chunks):
            add(computed)
    finally:
        pool.shutdown(cancel_futures=True)  # or Ctrl-C would wait for all remaining chunks
    return results
