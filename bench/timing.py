"""Times the calls of a function in this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_UNCOUNTED = 3


def time_calls(predict: Callable[[], object], *, num: int = 20) -> dict[str, float]:
    """Return the median time and CPU time of `num` calls, after some that do not count."""
    wall, cpu = [], []
    for _ in range(_UNCOUNTED + num):
        start, cpu_start = time.perf_counter(), time.process_time()
        predict()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return {
        "seconds": statistics.median(wall[_UNCOUNTED:]),
        "cpu_seconds": statistics.median(cpu[_UNCOUNTED:]),
    }
