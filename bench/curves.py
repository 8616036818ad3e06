"""The curves of accuracy over time: stored in curves.json, drawn, and compared in pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from boxcrew.core.units import format_duration
from boxcrew.report.plots.style import SERIES, dress, new_figure, save

CURVES = Path(__file__).parent / "curves.json"
PLOT = Path(__file__).parents[1] / "docs" / "images" / "accuracy.png"
COLORS = (*SERIES, "#000000", "#777777", "#bbbbbb")
NUM_EVALUATIONS = 6  # evaluations of a peer in a run, the last at its end


@dataclass(frozen=True, kw_only=True)
class Point:
    seconds: float  # of training
    AP50: float
    AP: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One contestant's run on one set."""

    data: str
    contestant: str
    allowed: float  # seconds of training
    points: tuple[Point, ...]  # in order of time; the last is the result
    how: str  # in words
    stamp: Mapping[str, str]  # machine, commit, date

    @property
    def result(self) -> Point:
        return self.points[-1]

    def sentence(self) -> str:
        best = max(self.points, key=lambda point: point.AP50)
        return (
            f"{self.contestant}: {self.how}; AP {self.result.AP:.3f}, best AP50 on the way {best.AP50:.3f} "
            f"at {format_duration(best.seconds)}; commit {self.stamp['commit']}, {self.stamp['date']}"
        )


Curves = Mapping[tuple[str, str], Curve]
"""Curves by set and contestant."""


def read_curves(file: Path = CURVES) -> dict[tuple[str, str], Curve]:
    stored: list[dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else []
    curves = [
        Curve(**tree | {"points": tuple(Point(**point) for point in tree["points"])}) for tree in stored
    ]
    return {(curve.data, curve.contestant): curve for curve in curves}


def write_curves(curves: Curves, file: Path = CURVES) -> None:
    file.write_text(json.dumps([asdict(_rounded(curve)) for curve in curves.values()], indent=2) + "\n")


def _rounded(curve: Curve) -> Curve:
    points = (
        Point(seconds=round(p.seconds, 1), AP50=round(p.AP50, 4), AP=round(p.AP, 4)) for p in curve.points
    )
    return replace(curve, points=tuple(points))


def plot_curves(curves: Curves, sets: Sequence[str], labels: Mapping[str, str], path: Path) -> None:
    """Draw AP50 over minutes: a panel for each set, a line for each contestant in `labels`."""
    shown = [name for name in sets if any(curve.data == name for curve in curves.values())]
    figure = new_figure(4.4 * len(shown), 3.9)
    lines = {}
    for panel, name in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), panel + 1)
        for (contestant, label), color in zip(labels.items(), COLORS, strict=True):
            curve = curves.get((name, contestant))
            if curve is None:
                continue
            minutes = [0.0, *(point.seconds / 60 for point in curve.points)]
            heights = [0.0, *(point.AP50 for point in curve.points)]
            (lines[label],) = axes.plot(minutes, heights, color=color, marker="o", markersize=3.5)
        dress(axes, title=name, x="minutes of training", y="AP50 on val")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    figure.legend(
        lines.values(),
        lines.keys(),
        loc="outside lower center",
        ncols=4,
        fontsize=8,
        frameon=False,
    )
    save(figure, path)
