"""Measures what a network costs in torch and in a file: time and processor time of a sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median

import torch

_ROUNDS, _SECONDS = 5, 0.4  # of each side, taking turns


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The milliseconds of one sample, on the clock and of the processor."""

    ms: float
    cpu_ms: float

    def tree(self) -> Mapping[str, float]:
        return asdict(self)


def measure(sides: Mapping[str, Callable[[], object]]) -> dict[str, Cost]:
    """Return the cost of each side, called over and over on one thread; medians of rounds that take turns."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rounds: dict[str, list[Cost]] = {name: [] for name in sides}
    try:
        for _ in range(_ROUNDS):
            for name, side in sides.items():
                rounds[name].append(_round(side))
    finally:
        torch.set_num_threads(threads)
    return {
        name: Cost(ms=median(cost.ms for cost in costs), cpu_ms=median(cost.cpu_ms for cost in costs))
        for name, costs in rounds.items()
    }


def _round(side: Callable[[], object]) -> Cost:
    side()
    start, begun_cpu, count, passed = time.perf_counter(), time.process_time(), 0, 0.0
    while passed < _SECONDS:
        side()
        count += 1
        passed = time.perf_counter() - start
    cpu = time.process_time() - begun_cpu
    return Cost(ms=1000 * passed / count, cpu_ms=1000 * cpu / count)
