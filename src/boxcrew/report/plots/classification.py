"""Plots of an evaluated classifier, each from its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxcrew.evaluate.classification import NUM_BINS, CalibrationBin, ClassificationReport
from boxcrew.evaluate.detection.metric import ClassRates
from boxcrew.report.plots.confusion import MOST_WITH_NUMBERS, color_bar, name_cells, row_shares, write_shares
from boxcrew.report.plots.style import (
    ACCENT,
    INK,
    MUTED,
    SERIES,
    SHADES,
    dress,
    new_figure,
    save,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Array = npt.NDArray[np.float64]

_OVERCONFIDENT, _UNDERCONFIDENT = SERIES[4], SERIES[5]
_ERROR_SHADES = "Oranges"
_LEAST_SCALE = 0.1  # of errors: a classifier with hardly any must not look bad


def write_classification_plots(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the plots of a `ClassificationReport`, given as JSON, into `folder`. Return the files."""
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
    """Draw the confusion matrix, each row divided by its sum; up to 30 classes with numbers in the cells.

    Correct and wrong shares have their own colors and scales: a good classifier's errors would be too pale.
    """
    shares, totals = row_shares(report.confusion)
    size = len(shares)
    correct = np.eye(size, dtype=np.bool_)
    most = max(_LEAST_SCALE, float(shares[~correct].max(initial=0.0)))
    inches = min(14.0, 2.8 + 0.52 * size)
    figure = new_figure(inches + 2.0, inches, "Confusion matrix")
    axes = figure.add_subplot()
    dress(axes, x="predicted", y="truth · count")
    for hidden, shades, top, label in (
        (correct, _ERROR_SHADES, most, "wrong, share of the row"),
        (~correct, SHADES, 1.0, "correct, share of the row"),
    ):
        visible = np.where(hidden | (shares == 0), np.nan, shares)  # white is zero
        shown = axes.imshow(visible, cmap=shades, vmin=0, vmax=top, aspect="auto")
        color_bar(figure, axes, shown, label)
    name_cells(axes, shorten([rates.name for rates in report.classes]), totals)
    if size <= MOST_WITH_NUMBERS:
        write_shares(axes, shares, np.where(correct, 1.0, most))
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
    above.set_xlim(0, 1)
    above.set_ylim(0, 1.02)
    above.legend(
        fontsize=8.5, frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1), labelcolor=INK
    )
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
        (accuracy - lower, _UNDERCONFIDENT, "accuracy above the confidence"),
        (confidence - lower, _OVERCONFIDENT, "confidence above the accuracy"),
    ):
        axes.bar(centers, gap, bottom=lower, width=width, color=color, label=label)


def plot_classes(report: ClassificationReport, path: Path) -> None:
    """Draw the F1 of each class as a bar, the best class on top, with its numbers beside it."""
    classes = sorted(report.classes, key=lambda rates: (rates.num_examples > 0, rates.F1))
    size = len(classes)
    spacing, letters = (0.34, 9.0) if size <= 30 else (0.21, 7.0)
    figure = new_figure(8.6, 1.7 + spacing * size)
    axes = figure.add_subplot()
    dress(axes, title="F1 of each class", x="F1")
    rows = np.arange(size)
    axes.barh(rows, [rates.F1 for rates in classes], height=0.72, color=ACCENT)
    mean = report.numbers["F1"]
    if mean >= 0:
        axes.vlines(
            mean, -0.6, size - 0.4, color=INK, linewidth=1, linestyle="dashed", label=f"mean {mean:.3f}"
        )
        axes.legend(
            fontsize=8.5, frameon=False, loc="lower right", bbox_to_anchor=(0.76, 1.0), labelcolor=INK
        )
    _write_rates(axes, classes, letters=letters)
    axes.set_ylim(-0.6, size - 0.4)
    axes.set_xlim(0, 1.3)
    axes.set_xticks(np.arange(6) / 5)
    axes.grid(visible=False, axis="y")
    save(figure, path)


def _write_rates(axes: Axes, classes: Sequence[ClassRates], *, letters: float) -> None:
    """Write names and counts on the left, and numbers in a column on the right."""
    names = shorten([rates.name for rates in classes])
    counted = [f"{name} · {rates.num_examples}" for name, rates in zip(names, classes, strict=True)]
    axes.set_yticks(range(len(classes)), counted, fontsize=letters, color=INK, parse_math=False)
    head = "F1 · precision · recall"
    axes.text(1.29, len(classes) - 0.35, head, ha="right", va="bottom", fontsize=8.5, color=MUTED)
    for row, rates in enumerate(classes):
        numbers = f"{rates.F1:.3f} · {rates.precision:.3f} · {rates.recall:.3f}"
        text = numbers if rates.num_examples else "no examples"
        axes.text(1.29, row, text, ha="right", va="center", fontsize=letters - 0.5, color=MUTED)
