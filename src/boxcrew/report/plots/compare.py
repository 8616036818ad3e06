"""A scatter of what runs reach against the time of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boxcrew.report.plots.style import INK, SERIES, dress, new_figure, save

Point = tuple[str, float, float]
"""(name, milliseconds of a sample, score)"""


def plot_scatter(points: Sequence[Point], path: Path, *, metric: str) -> None:
    """Draw the points, with times on a logarithmic axis and each name beside its point."""
    figure = new_figure(7.5, 4.5)
    axes = figure.add_subplot()
    dress(axes, title=f"{metric} and time", x="milliseconds a sample, proposals included", y=metric)
    axes.set_xscale("log")
    for number, ((name, time, score), offset) in enumerate(zip(points, _label_offsets(points), strict=True)):
        place = max(time, 1e-3), score
        axes.scatter([place[0]], [place[1]], s=60, color=SERIES[number % len(SERIES)], zorder=3)
        axes.annotate(name, place, xytext=offset, textcoords="offset points", color=INK, fontsize=9)
    axes.margins(x=0.25, y=0.18)
    save(figure, path)


def _label_offsets(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return for each name its distance from its point, in points: above and below it by turns, in the order
    of times, so that neighbors do not overlap.
    """
    order = sorted(range(len(points)), key=lambda index: points[index][1])
    offsets = [(0.0, 0.0)] * len(points)
    for rank, index in enumerate(order):
        offsets[index] = (-12.0, 9.0 if rank % 2 == 0 else -17.0)
    return offsets
