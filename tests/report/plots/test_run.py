"""Plots of a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boxcrew.core.errors import DataError
from boxcrew.report.plots.run import write_plots

ROW = json.dumps({"step": 1, "epoch": 0.1, "time": 2.0, "loss": 3.0})


def test_everything_there(report_of: Any, read_png: Any, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(json.dumps(report_of(2).to_json()))
    (tmp_path / "metrics.jsonl").write_text(f"{ROW}\n")
    written = write_plots(tmp_path)
    names = ["results.png", "confusion_matrix.png", "PR_curve.png", "F1_curve.png", "classes.png"]
    assert written == [tmp_path / "plots" / name for name in names]
    for path in written:
        read_png(path)


def test_files_that_do_not_exist_are_passed_over(tmp_path: Path) -> None:
    assert write_plots(tmp_path) == []
    assert not (tmp_path / "plots").exists()
    (tmp_path / "metrics.jsonl").write_text(f"{ROW}\n")
    assert write_plots(tmp_path) == [tmp_path / "plots" / "results.png"]


def test_a_last_line_cut_short_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(f"{ROW}\n{ROW[:20]}")
    assert len(write_plots(tmp_path)) == 1


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(f"{ROW}\nnonsense\n{ROW}\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: .*nonsense"):
        write_plots(tmp_path)


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"numbers": {}, "classes": [{"nam": 1}], "curves": {}}'])
def test_a_broken_evaluation_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(DataError, match=r"evaluation\.json: not an evaluation") as caught:
        write_plots(tmp_path)
    assert "boxcrew val" in caught.value.advice
