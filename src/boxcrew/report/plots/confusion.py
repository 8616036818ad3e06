"""Parts of confusion matrices that the plots of detection and classification share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxcrew.report.plots.style import INK, MUTED, PALE

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
    axes.set_xticks(
        range(size),
        names,
        rotation=90 if many else 40,
        ha="center" if many else "right",
        rotation_mode="default" if many else "anchor",
        parse_math=False,
    )
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
