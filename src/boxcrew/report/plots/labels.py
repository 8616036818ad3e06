"""The plot of a data set's labels: classes, counts, sizes, shapes and positions of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from boxcrew.core.boxes import area
from boxcrew.core.types import Floats
from boxcrew.data.detection.records import Records
from boxcrew.report.plots.style import ACCENT, INK, MUTED, PALE, SHADES, dress, new_figure, save, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS = 5000  # of the scatter plot
_LIMITS = (32, 96)  # COCO: sides of squares that divide small, medium and large


def plot_labels(records: Records, classes: Sequence[str], path: Path) -> None:
    """Draw the labels of a data set."""
    objects, counts = records.objects(), records.counts
    boxes, labels = objects.boxes, objects.labels
    image_sizes = np.repeat(records.sizes.astype(np.float32), counts, axis=0)
    figure = new_figure(13.0, 7.4, f"{len(boxes):,} objects in {len(records):,} images")
    layout = figure.add_gridspec(2, 4, height_ratios=(1.0, 1.05))
    _draw_classes(figure.add_subplot(layout[0, :]), labels, classes)
    _draw_counts(figure.add_subplot(layout[1, 0]), counts.tolist())
    _draw_sizes(figure.add_subplot(layout[1, 1]), boxes)
    _draw_shapes(figure.add_subplot(layout[1, 2]), boxes, image_sizes)
    _draw_centers(figure.add_subplot(layout[1, 3]), boxes, image_sizes)
    save(figure, path)


def _draw_classes(axes: Axes, labels: npt.NDArray[np.int64], classes: Sequence[str]) -> None:
    counts = np.bincount(labels, minlength=len(classes))
    order = np.argsort(-counts, kind="stable")
    dress(axes, title="Objects of each class")
    bars = axes.bar(range(len(classes)), counts[order], color=ACCENT, width=0.75)
    many = len(classes) > 20
    letters = 9 if not many else min(8.0, max(4.5, 560 / len(classes)))
    names = [shorten(classes[i]) for i in order]
    axes.set_xticks(range(len(classes)), names, rotation=90 if many else 0)
    axes.tick_params(axis="x", labelsize=letters, labelcolor=INK)
    margin = 0.7 + max(0.0, (5 - len(classes)) / 2)  # a few bars are centered, not too wide
    axes.set_xlim(-margin, len(classes) - 1 + margin)
    axes.grid(visible=False)
    axes.set_ylim(0, max(1, counts.max(initial=0)) * 1.12)
    axes.bar_label(bars, padding=3, fontsize=letters - 1, color=MUTED, rotation=90 if many else 0)


def _draw_counts(axes: Axes, counts: Sequence[int]) -> None:
    dress(axes, title="Objects per image", x="objects", y="images")
    most = max(counts, default=0)
    step = max(1, -(-(most + 1) // 40))
    edges = [start - 0.5 for start in range(0, most + 1 + step, step)]
    axes.hist(counts, bins=edges, color=ACCENT, edgecolor="white", linewidth=0.5)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="both", integer=True, nbins=6)
    axes.grid(visible=False, axis="x")


def _draw_sizes(axes: Axes, boxes: Floats) -> None:
    dress(axes, title="Size of boxes", x="root of the area, pixels (lines: 32, 96)", y="boxes")
    sides = np.sqrt(np.maximum(area(boxes), 1.0))
    top = float(sides.max(initial=128.0))
    edges = np.geomspace(max(1.0, float(sides.min(initial=8.0))), top * 1.01, 36).tolist()
    axes.hist(sides, bins=edges, color=ACCENT, edgecolor="white", linewidth=0.5)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0)
    for limit in _LIMITS:
        axes.axvline(limit, color=MUTED, linewidth=1, linestyle=(0, (2, 2)))


def _draw_shapes(axes: Axes, boxes: Floats, image_sizes: Floats) -> None:
    dress(axes, title="Shape of boxes", x="width / image width", y="height / image height")
    shares = (boxes[:, 2:] - boxes[:, :2]) / image_sizes
    if len(shares) > _MOST_POINTS:
        shares = shares[np.random.default_rng(0).choice(len(shares), _MOST_POINTS, replace=False)]
    alpha = float(np.clip(60 / max(1, len(shares)) ** 0.7, 0.06, 0.6))
    axes.scatter(shares[:, 0], shares[:, 1], s=7, color=ACCENT, alpha=alpha, linewidths=0)
    _square(axes)


def _draw_centers(axes: Axes, boxes: Floats, image_sizes: Floats) -> None:
    dress(axes, title="Centers of boxes", x="x / image width", y="y / image height")
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2 / image_sizes
    bins = int(np.clip(len(centers) ** 0.5 / 2, 8, 40))
    heat, _, _ = np.histogram2d(centers[:, 1], centers[:, 0], bins=bins, range=((0, 1), (0, 1)))
    axes.imshow(
        heat, cmap=SHADES, extent=(0, 1, 1, 0), interpolation="nearest", vmin=0, vmax=max(1, heat.max())
    )
    axes.grid(visible=False)
    _square(axes)
    axes.invert_yaxis()


def _square(axes: Axes) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.set_aspect("equal", anchor="N")
    for spine in axes.spines.values():
        spine.set(visible=True, color=PALE)
