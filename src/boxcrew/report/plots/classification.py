"""Plots of an evaluated classifier, each from its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxcrew.evaluate.classification import NUM_BINS, CalibrationBin, ClassificationReport
from boxcrew.evaluate.detection.metric import ClassRates
from boxcrew.report.plots.style import (
    ACCENT,
    INK,
    MUTED,
    PALE,
    SERIES,
    SHADES,
    dress,
    new_figure,
    save,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Array = npt.NDArray[np.float64]

_BOASTED, _MODEST = SERIES[4], SERIES[5]
_SHADES_OF_MISTAKES = "Oranges"
_LEAST_SCALE = 0.1  # of mistakes: a classifier without any is not to look as if it had some
_MOST_WITH_NUMBERS = 30


def write_classification_plots(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """From the JSON of a `ClassificationReport` into `folder`, a run's `plots/`. Returns what was written."""
    report = ClassificationReport.from_json(data)
    written = []
    for name, plot in (
        ("confusion_matrix.png", plot_confusion),
        ("reliability.png", plot_reliability),
        ("classes.png", plot_classes),
    ):
        plot(report, folder / name)
        written.append(folder / name)
    return written


def plot_confusion(report: ClassificationReport, path: Path) -> None:
    """The confusion matrix, each row divided by its sum; numbers in the cells up to 30 classes.

    What is right and what is mistaken have a colour and a scale each: a good classifier's mistakes would be
    too pale to see beside what it gets right.
    """
    counts = np.array(report.confusion, dtype=np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    size = len(counts)
    is_right = np.eye(size, dtype=np.bool_)
    most = max(_LEAST_SCALE, float(shares[~is_right].max(initial=0.0)))
    inches = min(14.0, 2.8 + 0.52 * size)
    figure = new_figure(inches + 2.0, inches, "Confusion matrix")
    axes = figure.add_subplot()
    dress(axes, x="found", y="truth · count")
    for hidden, shades, top, words in (
        (is_right, _SHADES_OF_MISTAKES, most, "mistaken, share of the row"),
        (~is_right, SHADES, 1.0, "right, share of the row"),
    ):
        visible = np.where(hidden | (shares == 0), np.nan, shares)  # white is none
        shown = axes.imshow(visible, cmap=shades, vmin=0, vmax=top, aspect="auto")
        _scale(figure, axes, shown, words)
    _name_cells(axes, [one.name for one in report.classes], totals[:, 0])
    if size <= _MOST_WITH_NUMBERS:
        _write_shares(axes, shares, np.where(is_right, 1.0, most))
    save(figure, path)


def _scale(figure: Figure, axes: Axes, shown: Any, words: str) -> None:
    bar = figure.colorbar(shown, ax=axes, fraction=0.035, pad=0.02, aspect=30)
    bar.set_label(words, fontsize=9, color=MUTED)
    bar.ax.tick_params(labelsize=8.5, colors=MUTED, length=0)
    bar.outline.set_visible(False)


def _name_cells(axes: Axes, names: Sequence[str], totals: _Array) -> None:
    size = len(names)
    many = size > 12
    shortened = shorten(names)
    axes.set_xticks(
        range(size),
        shortened,
        rotation=90 if many else 40,
        ha="center" if many else "right",
        rotation_mode="default" if many else "anchor",
        parse_math=False,
    )
    rows = [f"{name} · {total:.0f}" for name, total in zip(shortened, totals, strict=True)]
    axes.set_yticks(range(size), rows, parse_math=False)
    axes.tick_params(labelsize=min(9.5, max(5.0, 400 / size)), labelcolor=INK)
    axes.grid(visible=False)
    edges = np.arange(size - 1) + 0.5
    for lines in (axes.hlines, axes.vlines):
        lines(edges, -0.5, size - 0.5, color=PALE, linewidth=0.3 if many else 0.6)


def _write_shares(axes: Axes, shares: _Array, scales: _Array) -> None:
    """Nothing where a share is nil; per cent where cells are small. `scales` have the darkest colour."""
    size = len(shares)
    for row, column in np.argwhere(shares >= 0.005):
        share = shares[row, column]
        text = f"{100 * share:.0f}" if size > 14 else f"{share:.2f}"
        colour = "white" if share > 0.55 * scales[row, column] else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=min(9.0, 190 / size), color=colour)


def plot_reliability(report: ClassificationReport, path: Path) -> None:
    """Accuracy along confidence, with how far it is from it, and how many examples there are of each."""
    figure = new_figure(6.4, 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1.0))
    error = report.numbers["ECE"]
    said = f", off by {error:.3f} in the mean (ECE)" if error >= 0 else ""
    dress(above, title=f"Reliability{said}", y="accuracy")
    dress(below, x="confidence: the probability of the found class", y="examples")
    places, width = (np.arange(NUM_BINS) + 0.5) / NUM_BINS, 0.9 / NUM_BINS
    _draw_accuracy(above, report.calibration, places, width)
    above.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="dashed", label="as it should be")
    above.set_xlim(0, 1)
    above.set_ylim(0, 1.02)
    above.legend(fontsize=8.5, frameon=False, loc="upper left", labelcolor=INK)
    below.bar(places, [part.count for part in report.calibration], width=width, color=MUTED)
    below.set_ylim(bottom=0)
    below.locator_params(axis="y", nbins=3, integer=True)
    save(figure, path)


def _draw_accuracy(axes: Axes, bins: Sequence[CalibrationBin], places: _Array, width: float) -> None:
    """As bars, and on them what is between it and the confidence; both are 0 where there are no examples."""
    accuracy = np.array([part.accuracy for part in bins])
    confidence = np.array([part.confidence for part in bins])
    lower = np.minimum(accuracy, confidence)
    modest, boasted = accuracy - lower, confidence - lower
    axes.bar(places, lower, width=width, color=ACCENT, label="accuracy")
    axes.bar(places, modest, bottom=lower, width=width, color=_MODEST, label="accuracy above the confidence")
    axes.bar(
        places, boasted, bottom=lower, width=width, color=_BOASTED, label="confidence above the accuracy"
    )


def plot_classes(report: ClassificationReport, path: Path) -> None:
    """F1 of each class as bars, the best class on top, with the numbers beside them."""
    rates = sorted(report.classes, key=lambda one: (one.num_examples > 0, one.F1))
    size = len(rates)
    spacing, letters = (0.34, 9.0) if size <= 30 else (0.21, 7.0)
    figure = new_figure(8.6, 1.7 + spacing * size)
    axes = figure.add_subplot()
    dress(axes, title="F1 of each class", x="F1")
    rows = np.arange(size)
    axes.barh(rows, [one.F1 for one in rates], height=0.72, color=ACCENT)
    mean = report.numbers["F1"]
    if mean >= 0:
        axes.vlines(
            mean, -0.6, size - 0.4, color=INK, linewidth=1, linestyle="dashed", label=f"mean {mean:.3f}"
        )
        axes.legend(
            fontsize=8.5, frameon=False, loc="lower right", bbox_to_anchor=(0.76, 1.0), labelcolor=INK
        )
    _write_rates(axes, rates, letters=letters)
    axes.set_ylim(-0.6, size - 0.4)
    axes.set_xlim(0, 1.3)
    axes.set_xticks(np.arange(6) / 5)
    axes.grid(visible=False, axis="y")
    save(figure, path)


def _write_rates(axes: Axes, rates: Sequence[ClassRates], *, letters: float) -> None:
    """Names and counts on the left, numbers in a column on the right."""
    names = shorten([one.name for one in rates])
    counted = [f"{name} · {one.num_examples}" for name, one in zip(names, rates, strict=True)]
    axes.set_yticks(range(len(rates)), counted, fontsize=letters, color=INK, parse_math=False)
    head = "F1 · precision · recall"
    axes.text(1.29, len(rates) - 0.35, head, ha="right", va="bottom", fontsize=8.5, color=MUTED)
    for row, one in enumerate(rates):
        numbers = f"{one.F1:.3f} · {one.precision:.3f} · {one.recall:.3f}"
        text = numbers if one.num_examples else "no examples"
        axes.text(1.29, row, text, ha="right", va="center", fontsize=letters - 0.5, color=MUTED)
