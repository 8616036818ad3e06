"""A row of the benchmarks: a measured figure, and what it is compared with."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

Figure = TypeVar("Figure")


@dataclass(frozen=True, kw_only=True)
class Row:
    what: str
    ours: str
    theirs: str  # of the peer or the aim; empty if there is none
    verdict: str  # the ratio, or whether the aim is met
    command: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def skipped(*, what: str, reason: str, command: str, ours: str = "") -> Row:
    """Return the row of a comparison that something is missing for."""
    return Row(what=what, ours=ours, theirs="", verdict=f"skipped: {reason}", command=command)


def alternate(runs: Sequence[Callable[[], float]], *, repeats: int) -> list[float]:
    """Return the median of each run. They take turns, so that changes of the machine's speed affect all."""
    return [statistics.median(values) for values in _in_turns(runs, repeats)]


def alternate_figures(
    runs: Sequence[Callable[[], Mapping[str, float]]], *, repeats: int
) -> list[dict[str, float]]:
    """Return the medians of runs with several figures each; the runs take turns."""
    return [
        {name: statistics.median(figures[name] for figures in values) for name in values[0]}
        for values in _in_turns(runs, repeats)
    ]


def _in_turns(runs: Sequence[Callable[[], Figure]], repeats: int) -> list[list[Figure]]:
    measured: list[list[Figure]] = [[] for _ in runs]
    for _ in range(repeats):
        for values, run in zip(measured, runs, strict=True):
            values.append(run())
    return measured
