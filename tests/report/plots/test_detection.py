"""Plots of an evaluation."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.evaluate.detection.types import DetectionReport
from boxcrew.report.plots.detection import plot_classes, plot_confusion, plot_f1, plot_precision_recall
from boxcrew.report.plots.style import DPI

PLOTS = (plot_classes, plot_confusion, plot_f1, plot_precision_recall)


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("num_classes", [1, 8, 80])
def test_any_number_of_classes(
    plot: Callable[[DetectionReport, Path], None],
    num_classes: int,
    report_of: Any,
    read_png: Any,
    tmp_path: Path,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where texts find no room
        plot(report_of(num_classes), tmp_path / "new" / "plot.png")
    height, width = read_png(tmp_path / "new" / "plot.png").shape[:2]
    assert 200 <= height <= 2600
    assert 500 <= width <= 2100
    if plot in (plot_f1, plot_precision_recall):
        assert (height, width) == (round(5.6 * DPI), round(8.6 * DPI))


@pytest.mark.parametrize("plot", PLOTS)
def test_nothing_to_show(
    plot: Callable[[DetectionReport, Path], None],
    nothing_found: DetectionReport,
    read_png: Any,
    tmp_path: Path,
) -> None:
    plot(nothing_found, tmp_path / "plot.png")
    assert (read_png(tmp_path / "plot.png") < 128).any()  # axes and words


def test_cells_are_as_dark_as_their_share(report_of: Any, read_png: Any, tmp_path: Path) -> None:
    report = report_of(2)
    all_right, all_missed = ((9, 0, 0), (0, 9, 0), (1, 1, 0)), ((0, 0, 9), (0, 0, 9), (1, 1, 0))
    missed_is_dark = []
    for name, counts in (("right", all_right), ("missed", all_missed)):
        plot_confusion(replace(report, confusion=counts), tmp_path / f"{name}.png")
        pixels = read_png(tmp_path / f"{name}.png").astype(int)
        is_dark = (pixels[..., 0] > 90) & (pixels[..., 2] < 40)  # blue
        is_dark[:, int(0.88 * is_dark.shape[1]) :] = False  # the color bar
        places = np.argwhere(is_dark)
        assert len(places) > 0.03 * is_dark.size
        missed_is_dark.append(places[:, 1].mean() / is_dark.shape[1])
    assert missed_is_dark[0] < 0.55 < missed_is_dark[1]


def test_pyplot_is_not_touched(report_of: Any, tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    plot_f1(report_of(1), tmp_path / "plot.png")
    assert ("matplotlib.pyplot" in sys.modules) == before
