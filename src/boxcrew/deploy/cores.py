"""CPU cores for replicas that share a host: each is pinned to its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from boxcrew.hardware.probe import cores_by_node

_THREADS = Path("/proc/self/task")


@contextmanager
def on_own_cores(index: int, num: int) -> Iterator[None]:
    """Pin this process, and those it starts inside, to one of `num` slices of the cores, where possible."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    _pin(core_slice(cores_by_node(), index, num))
    try:
        yield
    finally:
        _pin(before)


def _pin(cores: Iterable[int]) -> None:
    """Pin all threads of this process; threads they start inherit it."""
    threads = [int(folder.name) for folder in _THREADS.iterdir()] if _THREADS.is_dir() else [0]
    for thread in threads:
        with suppress(OSError):  # it may have ended just now
            os.sched_setaffinity(thread, cores)


def core_slice(cores: Sequence[int], index: int, num: int) -> list[int]:
    """Return the `index`-th of `num` slices of consecutive cores, as equal as can be; at least one core."""
    assert 0 <= index < num
    begin, end = index * len(cores) // num, (index + 1) * len(cores) // num
    return list(cores[begin : max(end, begin + 1)])
