"""Plots of a training's numbers."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.report.plots.style import DPI
from boxcrew.report.plots.training import _arrange, _series, _smooth, plot_results


def training(num_rows: int) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    for step in range(1, num_rows + 1):
        rows.append(
            {"step": step, "epoch": step / 10, "time": step * 0.5, "loss": 5 / step, "loss/box": 2 / step}
        )
        rows[-1] |= {"loss/class": 3 / step, "rate": 1e-3, "images_per_second": 40.0, "data_wait": 0.02}
        if step % 10 == 0:
            rows.append({"step": step, "epoch": step / 10, "time": step * 0.5, "AP": 0.3, "AP50": 0.5})
    return rows


@pytest.mark.parametrize("num_rows", [1, 12, 200])
def test_a_panel_for_each_kind_of_number(num_rows: int, read_png: Any, tmp_path: Path) -> None:
    plot_results(training(num_rows), tmp_path / "results.png")
    rows, columns = (2, 4) if num_rows >= 10 else (2, 3)  # 7 panels with AP, 6 without
    assert read_png(tmp_path / "results.png").shape == (
        round((2.7 * rows + 0.4) * DPI),
        round(3.6 * columns * DPI),
        3,
    )


def test_only_evaluations_only_losses_or_nothing(read_png: Any, tmp_path: Path) -> None:
    for name, rows in {"a": [{"step": 5, "AP": 0.1}], "b": [{"step": 5, "loss": math.nan}], "c": []}.items():
        plot_results(rows, tmp_path / f"{name}.png")
        assert (read_png(tmp_path / f"{name}.png") < 128).any()  # something is written


def test_the_last_row_of_a_step_counts_and_steps_ascend() -> None:
    rows = [
        {"step": 2, "loss": 9.0},
        {"step": 3, "loss": 8.0},
        {"step": 2, "loss": 1.0},
        {"step": 1, "AP": 0.5},
    ]
    steps, values = _series(rows, "loss")
    assert steps.tolist() == [2, 3]
    assert values.tolist() == [1, 8]


def test_smoothing_keeps_a_line_and_leaves_out_what_is_not_a_number() -> None:
    line = np.arange(100.0)
    assert np.allclose(_smooth(line)[5:-5], line[5:-5])
    broken = np.where(line == 50, np.nan, 1.0)
    assert np.allclose(_smooth(broken), 1.0)


@pytest.mark.parametrize(
    ("num_panels", "expected"), [(1, (1, 1)), (4, (1, 4)), (6, (2, 3)), (8, (2, 4)), (9, (3, 3))]
)
def test_few_places_stay_empty(num_panels: int, expected: tuple[int, int]) -> None:
    assert _arrange(num_panels) == expected


def test_matplotlib_is_imported_only_to_plot() -> None:
    modules = ", ".join(f"boxcrew.report.plots.{name}" for name in ("run", "labels", "classification"))
    code = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
