"""Plots of an evaluated classifier, each from its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from boxcrew.evaluate.classification import NUM_BINS, CalibrationBin, ClassificationReport
from boxcrew.report.plots import classes
from boxcrew.report.plots.style import ACCENT, INK, MUTED, SERIES, SHADES, dress, new_figure, save, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Array = npt.NDArray[np.float64]

_LEAST_SCALE = 0.1  # of errors: a classifier with hardly any must not look bad


def plot_confusion(report: ClassificationReport, path: Path) -> None:
    """Draw the confusion matrix, each row divided by its sum; up to 30 classes with numbers in the cells.

    Correct and wrong shares have their own colors and scales: a good classifier's errors would be too pale.
    """
    shares, totals = classes.row_shares(report.confusion)
    size = len(shares)
    correct = np.eye(size, dtype=np.bool_)
    most = max(_LEAST_SCALE, float(shares[~correct].max(initial=0.0)))
    inches = min(14.0, 2.8 + 0.52 * size)
    figure = new_figure(inches + 2.0, inches, "Confusion matrix")
    axes = figure.add_subplot()
    dress(axes, x="predicted", y="truth · count")
    for hidden, shades, top, label in (
        (correct, "Oranges", most, "wrong, share of the row"),
        (~correct, SHADES, 1.0, "correct, share of the row"),
    ):
        visible = np.where(hidden | (shares == 0), np.nan, shares)  # white is zero
        shown = axes.imshow(visible, cmap=shades, vmin=0, vmax=top, aspect="auto")
        classes.color_bar(figure, axes, shown, label)
    classes.name_cells(axes, [shorten(rates.name) for rates in report.classes], totals)
    if size <= classes.MOST_WITH_NUMBERS:
        classes.write_shares(axes, shares, np.where(correct, 1.0, most))
    save(figure, path)


def plot_reliability(report: ClassificationReport, path: Path) -> None:
    """Draw accuracy over confidence with the gap between them, and the number of examples of each."""
    figure = new_figure(6.4, 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1.0))
    error = report.numbers["ECE"]
    mean = f", calibration error {error:.3f} (ECE)" if error >= 0 else ""
    dress(above, title=f"Reliability{mean}", y="accuracy", pad=38)  # the legend is below the title
    dress(below, x="confidence: the probability of the predicted class", y="examples")
    centers, width = (np.arange(NUM_BINS) + 0.5) / NUM_BINS, 0.9 / NUM_BINS
    _draw_accuracy(above, report.calibration, centers, width)
    above.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="dashed", label="perfect calibration")
    above.set(xlim=(0, 1), ylim=(0, 1.02))
    classes.small_legend(above, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    below.bar(centers, [each.count for each in report.calibration], width=width, color=MUTED)
    below.set_ylim(bottom=0)
    below.locator_params(axis="y", nbins=3, integer=True)
    save(figure, path)


def _draw_accuracy(axes: Axes, bins: Sequence[CalibrationBin], centers: _Array, width: float) -> None:
    """Draw accuracy as bars, and on them the gap to the confidence; both are 0 without examples."""
    accuracy = np.array([each.accuracy for each in bins])
    confidence = np.array([each.confidence for each in bins])
    lower = np.minimum(accuracy, confidence)
    axes.bar(centers, lower, width=width, color=ACCENT, label="accuracy")
    for gap, color, label in (
        (accuracy - lower, SERIES[5], "accuracy above the confidence"),
        (confidence - lower, SERIES[4], "confidence above the accuracy"),
    ):
        axes.bar(centers, gap, bottom=lower, width=width, color=color, label=label)


def plot_classes(report: ClassificationReport, path: Path) -> None:
    """Draw the F1 of each class as a bar, the best class on top, with its numbers beside it."""
    ranked = sorted(report.classes, key=lambda rates: (rates.num_examples > 0, rates.F1))
    size, mean = len(ranked), report.numbers["F1"]
    figure, axes = classes.new_bars(size, title="F1 of each class", x="F1")
    axes.barh(range(size), [rates.F1 for rates in ranked], height=0.72, color=ACCENT)
    texts = [f"{each.F1:.3f} · {each.precision:.3f} · {each.recall:.3f}" for each in ranked]
    rows = [
        (rates.name, rates.num_examples, text if rates.num_examples else "no examples")
        for rates, text in zip(ranked, texts, strict=True)
    ]
    classes.finish_bars(axes, rows, mean=mean, right=1.29)
    head = "F1 · precision · recall"
    axes.text(1.29, size - 0.35, head, ha="right", va="bottom", fontsize=8.5, color=MUTED)
    if mean >= 0:
        classes.small_legend(axes, loc="lower right", bbox_to_anchor=(0.76, 1.0))
    save(figure, path)


PLOTS = {
    "confusion_matrix.png": plot_confusion,
    "reliability.png": plot_reliability,
    "classes.png": plot_classes,
}
"""The plots of a report, by file name."""
