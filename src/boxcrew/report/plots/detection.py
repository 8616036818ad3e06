"""Plots of an evaluated detector, each from its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boxcrew.evaluate.detection.curves import GRID, mean_curve
from boxcrew.evaluate.detection.types import DetectionReport
from boxcrew.report.plots import classes
from boxcrew.report.plots.style import (
    ACCENT,
    INK,
    MUTED,
    PALE_ACCENT,
    SHADES,
    class_hex,
    dress,
    new_figure,
    save,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_IN_LEGEND = 12


def plot_confusion(report: DetectionReport, path: Path) -> None:
    """Draw the confusion matrix, each row divided by its sum; up to 30 classes with numbers in the cells."""
    shares, totals = classes.row_shares(report.confusion)
    size = len(shares)
    inches = min(14.0, 2.6 + 0.52 * size)
    figure = new_figure(inches + 1.4, inches, "Confusion matrix")
    axes = figure.add_subplot()
    shown = axes.imshow(shares, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    threshold = report.numbers["threshold"]
    dress(axes, x=f"detected, at score ≥ {threshold:.2f} and IoU ≥ 0.5", y="truth · count")
    classes.name_cells(axes, [*(shorten(score.name) for score in report.classes), "background"], totals)
    for lines in (axes.hlines, axes.vlines):
        lines(size - 1.5, -0.5, size - 0.5, color=MUTED, linewidth=1)
    if len(report.classes) <= classes.MOST_WITH_NUMBERS:
        classes.write_shares(axes, shares, np.ones_like(shares))
    classes.color_bar(figure, axes, shown, "share of the row")
    save(figure, path)


def plot_precision_recall(report: DetectionReport, path: Path) -> None:
    """Draw precision over recall at IoU 0.5, for each class and the mean."""
    values = [score.AP50_voc12 for score in report.classes]
    mean = f"mean  {report.numbers['AP50_voc12']:.3f}"
    figure = new_figure(8.6, 5.6)
    axes = figure.add_subplot()
    dress(axes, title="Precision and recall at IoU 0.5", x="recall", y="precision")
    _draw_curves(axes, report, report.curves.precision, mean)
    _legend(axes, report, values, "AP50, area below")
    save(figure, path)


def plot_f1(report: DetectionReport, path: Path) -> None:
    """Draw F1 at IoU 0.5 over the score threshold, for each class and the mean."""
    values = [score.F1 if score.num_objects else None for score in report.classes]
    best, threshold = report.numbers["F1"], report.numbers["threshold"]
    figure = new_figure(8.6, 5.6)
    axes = figure.add_subplot()
    dress(axes, title="F1 at IoU 0.5", x="score threshold", y="F1")
    _draw_curves(axes, report, report.curves.f1_at(), f"mean  {best:.3f}")
    if best > 0:
        axes.axvline(threshold, color=MUTED, linewidth=1, linestyle=(0, (2, 2)), zorder=1)
        axes.plot([threshold], [best], "o", color=INK, markersize=6, zorder=5)
    _legend(axes, report, values, f"F1 at threshold {threshold:.2f}")
    save(figure, path)


def _draw_curves(
    axes: Axes, report: DetectionReport, curves: Sequence[tuple[float, ...] | None], mean_name: str
) -> None:
    """Draw a thin line for each class, of one color if there are many, and a bold one for the mean."""
    few = len(report.classes) <= _MOST_IN_LEGEND
    for label, curve in enumerate(curves):
        if curve is not None:
            color = class_hex(label) if few else ACCENT
            axes.plot(GRID, curve, color=color, linewidth=1.2 if few else 0.7, alpha=0.9 if few else 0.3)
    mean = mean_curve(curves)
    if mean and len(curves) > 1:  # it would hide a single curve
        axes.plot(GRID, mean, color=INK, linewidth=2.8, label=mean_name, zorder=4)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))


def _legend(axes: Axes, report: DetectionReport, values: Sequence[float | None], title: str) -> None:
    """Draw the legend beside the plot: classes with a value, the best first."""
    from matplotlib.lines import Line2D

    handles, texts = axes.get_legend_handles_labels()
    if len(report.classes) <= _MOST_IN_LEGEND:
        defined = [(value, label) for label, value in enumerate(values) if value is not None]
        for value, label in sorted(defined, reverse=True):
            handles.append(Line2D([], [], color=class_hex(label), linewidth=2))
            texts.append(f"{shorten(report.classes[label].name)}  {value:.3f}")
    elif handles:
        handles.append(Line2D([], [], color=ACCENT, linewidth=1, alpha=0.6))
        texts.append(f"each of {len(report.classes)} classes")
    if not handles:
        axes.text(0.5, 0.5, "no objects", ha="center", va="center", color=MUTED, transform=axes.transAxes)
        return
    style: dict[str, Any] = {"fontsize": 9, "frameon": False, "alignment": "left", "labelcolor": INK}
    legend = axes.legend(handles, texts, title=title, loc="upper left", bbox_to_anchor=(1.01, 1.0), **style)
    legend.get_title().set(fontsize=9, color=MUTED)


def plot_classes(report: DetectionReport, path: Path) -> None:
    """Draw AP and AP50 of each class as bars, the best class on top."""
    scores = sorted(report.classes, key=lambda score: (score.AP is not None, score.AP or 0.0))
    texts = ["no objects" if each.AP is None else f"{each.AP:.3f} · {each.AP50:.3f}" for each in scores]
    rows = [(score.name, score.num_objects, text) for score, text in zip(scores, texts, strict=True)]
    figure, axes = classes.new_bars(len(scores), title="Average precision of each class", x="AP")
    for name, color, label in (("AP50", PALE_ACCENT, "IoU 0.50"), ("AP", ACCENT, "IoU 0.50 … 0.95")):
        values = [getattr(score, name) or 0.0 for score in scores]
        axes.barh(range(len(scores)), values, height=0.72, color=color, label=label)
    classes.finish_bars(axes, rows, mean=report.numbers["AP"], right=1.21)
    classes.small_legend(axes, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


PLOTS = {
    "confusion_matrix.png": plot_confusion,
    "PR_curve.png": plot_precision_recall,
    "F1_curve.png": plot_f1,
    "classes.png": plot_classes,
}
"""The plots of a report, by file name."""
