"""Cores of their own for replicas that share a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from boxcrew.hardware.probe import cores_by_node

_THREADS = Path("/proc/self/task")


@contextmanager
def on_own_cores(index: int, num: int) -> Iterator[None]:
    """Inside, this process and those that it starts stay on one of `num` parts of the cores. Where the system
    does not let us say so, they go wherever it likes.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    _stay_on(part_of(cores_by_node(), index, num))
    try:
        yield
    finally:
        _stay_on(before)


def _stay_on(cores: Iterable[int]) -> None:
    """All threads that there are by now; those that they start do what they do."""
    threads = [int(place.name) for place in _THREADS.iterdir()] if _THREADS.is_dir() else [0]
    for thread in threads:
        with suppress(OSError):  # one that has ended just now
            os.sched_setaffinity(thread, cores)


def part_of(cores: Sequence[int], index: int, num: int) -> list[int]:
    """Consecutive ones, as equal in number as can be; one at least."""
    assert 0 <= index < num
    begin, end = index * len(cores) // num, (index + 1) * len(cores) // num
    return list(cores[begin : max(end, begin + 1)])
