"""Plots of a classifier's evaluation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.evaluate.classification import ClassificationReport, evaluate_classes
from boxcrew.report.plots.classification import (
    plot_classes,
    plot_confusion,
    plot_reliability,
)
from boxcrew.report.plots.run import write_plots
from boxcrew.report.plots.style import DPI

Plot = Callable[[ClassificationReport, Path], None]
PLOTS = (plot_confusion, plot_reliability, plot_classes)


def report_of(num_classes: int, num: int = 3000) -> ClassificationReport:
    """Return the report of a good classifier. Names are long, one is not ASCII; the last has no examples."""
    random = np.random.default_rng(num_classes)
    labels = random.integers(0, max(1, num_classes - 1), num)
    scores = random.normal(0, 1, (num, num_classes)) + 4 * np.eye(num_classes)[labels]
    scores[:, 0] += labels == 1  # taken for the first
    exponents = np.exp(1.5 * scores)
    names = ["café 手机", *(f"product number {i} of the long shelf" for i in range(1, num_classes))]
    return evaluate_classes(exponents / exponents.sum(axis=1, keepdims=True), labels, names)


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("num_classes", [1, 2, 100])
def test_any_number_of_classes(plot: Plot, num_classes: int, read_png: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where texts find no room
        plot(report_of(num_classes), tmp_path / "new" / "plot.png")
    height, width = read_png(tmp_path / "new" / "plot.png").shape[:2]
    assert 200 <= height <= 3000
    assert 500 <= width <= 2100
    if plot is plot_reliability:
        assert (height, width) == (round(6.4 * DPI), round(6.4 * DPI))


@pytest.mark.parametrize("plot", PLOTS)
def test_nothing_to_show(plot: Plot, read_png: Any, tmp_path: Path) -> None:
    plot(report_of(3, num=0), tmp_path / "plot.png")
    assert (read_png(tmp_path / "plot.png") < 128).any()  # axes and words


@pytest.mark.parametrize("plot", [plot_confusion, plot_classes])
def test_names_are_not_formulas(plot: Plot, read_png: Any, tmp_path: Path) -> None:
    report = report_of(2)
    classes = tuple(replace(rates, name=r"$\frac{ and $5") for rates in report.classes)
    plot(replace(report, classes=classes), tmp_path / "plot.png")
    assert (read_png(tmp_path / "plot.png") < 128).any()


def test_what_is_right_is_blue_and_what_is_mistaken_orange(read_png: Any, tmp_path: Path) -> None:
    report = report_of(2)
    blue, orange = [], []
    for name, counts in (("right", ((90, 0), (0, 90))), ("mistaken", ((0, 90), (90, 0)))):
        plot_confusion(replace(report, confusion=counts), tmp_path / f"{name}.png")
        pixels = read_png(tmp_path / f"{name}.png").astype(int)
        cells = pixels[:, : int(0.6 * pixels.shape[1])]  # without the scales
        blue.append(((cells[..., 0] > 90) & (cells[..., 2] < 40)).mean())
        orange.append(((cells[..., 2] > 110) & (cells[..., 0] < 40)).mean())
    assert min(blue[0], orange[1]) > 0.05
    assert max(blue[1], orange[0]) < 0.005


def test_all_of_a_run_from_its_json(read_png: Any, tmp_path: Path) -> None:
    data = {"milliseconds": {}, **report_of(10).to_json()}
    (tmp_path / "evaluation.json").write_text(json.dumps(data))
    written = write_plots(tmp_path)
    names = ["confusion_matrix.png", "reliability.png", "classes.png"]
    assert written == [tmp_path / "plots" / name for name in names]
    for path in written:
        read_png(path)
