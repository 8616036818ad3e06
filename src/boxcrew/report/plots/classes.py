"""Confusion matrices and bars of each class, as far as detection and classification share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxcrew.report.plots.style import INK, MUTED, PALE, dress, new_figure, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Array = npt.NDArray[np.float64]

MOST_WITH_NUMBERS = 30  # classes


def row_shares(confusion: Sequence[Sequence[int]]) -> tuple[_Array, _Array]:
    """Return the matrix with each row divided by its sum, and the sums."""
    counts = np.array(confusion, dtype=np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0), totals[:, 0]


def name_cells(axes: Axes, names: Sequence[str], totals: _Array) -> None:
    """Write the names of columns and rows, the rows with their totals, and draw lines between cells."""
    size = len(names)
    many = size > 12
    turned: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(size), names, parse_math=False, **({"rotation": 90} if many else turned))
    rows = [f"{name} · {total:.0f}" for name, total in zip(names, totals, strict=True)]
    axes.set_yticks(range(size), rows, parse_math=False)
    axes.tick_params(labelsize=min(9.5, max(5.0, 400 / size)), labelcolor=INK)
    axes.grid(visible=False)
    edges = np.arange(size - 1) + 0.5
    for lines in (axes.hlines, axes.vlines):
        lines(edges, -0.5, size - 0.5, color=PALE, linewidth=0.3 if many else 0.6)


def write_shares(axes: Axes, shares: _Array, scales: _Array) -> None:
    """Write shares above zero, in percent if cells are small. Those of `scales` have the darkest color."""
    size = len(shares)
    for row, column in np.argwhere(shares >= 0.005):
        share = shares[row, column]
        text = f"{100 * share:.0f}" if size > 14 else f"{share:.2f}"
        color = "white" if share > 0.55 * scales[row, column] else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=min(9.0, 190 / size), color=color)


def color_bar(figure: Figure, axes: Axes, shown: Any, label: str) -> None:
    bar = figure.colorbar(shown, ax=axes, fraction=0.035, pad=0.02, aspect=30)
    bar.set_label(label, fontsize=9, color=MUTED)
    bar.ax.tick_params(labelsize=8.5, colors=MUTED, length=0)
    bar.outline.set_visible(False)


def new_bars(num: int, *, title: str, x: str) -> tuple[Figure, Axes]:
    """Return a plot with room for a bar of each class, from 0 to 1, and for texts on both sides."""
    figure = new_figure(8.6, 1.7 + (0.34 if num <= MOST_WITH_NUMBERS else 0.21) * num)
    axes = figure.add_subplot()
    dress(axes, title=title, x=x)
    axes.set_xticks(np.arange(6) / 5)
    axes.grid(visible=False, axis="y")
    return figure, axes


def finish_bars(axes: Axes, rows: Sequence[tuple[str, int, str]], *, mean: float, right: float) -> None:
    """Write name, count and text of each class beside its bar, and draw the mean unless it is undefined (-1).

    The texts are a column that ends at `right`.
    """
    size = len(rows)
    if mean >= 0:
        label = f"mean {mean:.3f}"
        axes.vlines(mean, -0.6, size - 0.4, color=INK, linewidth=1, linestyle="dashed", label=label)
    letters = 9.0 if size <= MOST_WITH_NUMBERS else 7.0
    counted = [f"{shorten(name)} · {count}" for name, count, _ in rows]
    axes.set_yticks(range(size), counted, fontsize=letters, color=INK, parse_math=False)
    for row, (_, _, text) in enumerate(rows):
        axes.text(right, row, text, ha="right", va="center", fontsize=letters - 0.5, color=MUTED)
    axes.set(xlim=(0, right + 0.01), ylim=(-0.6, size - 0.4))


def small_legend(axes: Axes, **options: Any) -> None:
    axes.legend(fontsize=8.5, frameon=False, labelcolor=INK, **options)
