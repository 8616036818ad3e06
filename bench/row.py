"""One measured figure beside what it is to be compared with."""

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
    theirs: str  # of the peer or the aim; empty where there is none
    verdict: str  # the ratio, or whether the aim is met
    command: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def alternate(runs: Sequence[Callable[[], float]], *, repeats: int) -> list[float]:
    """The median of each, with the runs taking turns: the machine's moods then fall on all of them."""
    return [statistics.median(values) for values in _in_turns(runs, repeats)]


def alternate_figures(
    runs: Sequence[Callable[[], Mapping[str, float]]], *, repeats: int
) -> list[dict[str, float]]:
    """The same for runs that give several figures: the median of each."""
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
