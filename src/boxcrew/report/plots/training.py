"""The plot of a training: its metrics over its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from boxcrew.report.plots.style import SERIES, dress, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, float]
_Array = npt.NDArray[np.float64]

_NOISY = 30  # points from which on a smoothed curve is drawn too


@dataclass(frozen=True, kw_only=True)
class _Panel:
    title: str
    keys: tuple[str, ...]  # those that no row has are omitted
    unit: str = ""
    bounded: bool = False  # values are in 0..1
    from_zero: bool = True  # False: small changes would be hidden


_AFTER_LOSSES = (
    _Panel(title="Learning rate", keys=("rate",)),
    _Panel(title="Gradient norm", keys=("gradient_norm",)),
    _Panel(title="Speed", keys=("images_per_second",), unit="samples / s"),
    _Panel(title="Waiting for data", keys=("data_wait",), unit="share of the time", bounded=True),
    _Panel(title="Average precision", keys=("AP", "AP50", "AP75"), bounded=True),
    _Panel(title="Precision and recall", keys=("precision", "recall", "F1"), bounded=True),
    _Panel(title="Accuracy", keys=("accuracy", "accuracy5"), bounded=True),
    _Panel(title="Loss on the validation set", keys=("val_loss",), from_zero=False),
    _Panel(title="Calibration error", keys=("ECE",)),
    _Panel(title="Perplexity", keys=("perplexity",), from_zero=False),
    _Panel(title="Fréchet distance", keys=("frechet",)),
)


def plot_results(rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for each kind of metric in the rows of `metrics.jsonl`, over the steps.

    If several rows have the same step (of a resumed run), the last one counts.
    """
    panels = _panels(rows)
    num_rows, columns = _arrange(len(panels))
    figure = new_figure(3.6 * columns, 2.7 * num_rows + 0.4, "Training")
    for index, panel in enumerate(panels, start=1):
        _draw(figure.add_subplot(num_rows, columns, index), panel, rows)
    save(figure, path)


def _arrange(num_panels: int) -> tuple[int, int]:
    """Return the rows and columns with the fewest empty cells, three or four panels wide."""
    columns = min((4, 3), key=lambda wide: -num_panels % wide) if num_panels > 4 else max(1, num_panels)
    return max(1, math.ceil(num_panels / columns)), columns


def _panels(rows: Sequence[Row]) -> list[_Panel]:
    """Return the panels that have something to show, with the keys that some row has."""
    present = dict.fromkeys(key for row in rows for key in row)
    terms = [key for key in present if key.startswith("loss/")]
    terms = terms if len(terms) > 1 else []  # a single term is the loss
    losses = [_Panel(title=f"Loss: {key.removeprefix('loss/')}", keys=(key,)) for key in terms]
    panels = [_Panel(title="Loss", keys=("loss",)), *losses, *_AFTER_LOSSES]
    panels = [replace(panel, keys=tuple(filter(present.__contains__, panel.keys))) for panel in panels]
    return [panel for panel in panels if panel.keys]


def _draw(axes: Axes, panel: _Panel, rows: Sequence[Row]) -> None:
    for color, key in zip(SERIES, panel.keys, strict=False):
        steps, values = _series(rows, key)
        if len(steps) >= _NOISY and key != "rate":
            axes.plot(steps, values, color=color, linewidth=0.7, alpha=0.3)
            axes.plot(steps, _smooth(values), color=color, linewidth=1.7, label=key)
        else:
            marker = "o" if len(steps) < _NOISY else ""
            axes.plot(steps, values, color=color, linewidth=1.6, marker=marker, markersize=3, label=key)
    dress(axes, title=panel.title, x="step", y=panel.unit)
    if panel.bounded:
        axes.set_ylim(-0.02, 1.02)
    else:
        low, high = axes.get_ylim()
        if panel.from_zero and low > 0:
            axes.set_ylim(0.0, high + 0.05 * high)  # with the usual room above
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    axes.set_xlim(0, max((row["step"] for row in rows), default=1) * 1.02)
    axes.locator_params(axis="x", nbins=5)
    if len(panel.keys) > 1:
        axes.legend(fontsize=8, frameon=False, labelcolor="linecolor", loc="best", handlelength=1.2)


def _series(rows: Sequence[Row], key: str) -> tuple[_Array, _Array]:
    """Return the steps in ascending order, and their values."""
    last = {row["step"]: row[key] for row in rows if key in row}
    steps = sorted(last)
    return np.array(steps, dtype=np.float64), np.array([last[step] for step in steps], dtype=np.float64)


def _smooth(values: _Array) -> _Array:
    """Return the centered mean over a twentieth of the series, without values that are not finite."""
    half = max(2, len(values) // 40)
    known = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    count = np.concatenate([[0], np.cumsum(known)])
    indices = np.arange(len(values))
    low, high = np.maximum(indices - half, 0), np.minimum(indices + half + 1, len(values))
    num = count[high] - count[low]
    result: _Array = np.divide(total[high] - total[low], num, out=np.full(len(values), np.nan), where=num > 0)
    return result
