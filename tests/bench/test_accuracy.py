"""The bookkeeping of the accuracy benchmark; what it measures is too long for a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import accuracy
from bench.__main__ import parse_arguments
from bench.curves import Curve, Point, plot_curves, read_curves, write_curves
from boxcrew.core.errors import UsageError


def curve(contestant: str, *heights: float, allowed: float = 900) -> Curve:
    count = len(heights)
    points = [
        Point(seconds=allowed * (i + 1) / count, AP50=height, AP=height / 2)
        for i, height in enumerate(heights)
    ]
    stamp = {"machine": "a machine", "commit": "abc", "date": "2026-01-01"}
    return Curve(
        data="groceries8_voc",
        contestant=contestant,
        allowed=allowed,
        points=tuple(points),
        how="somehow",
        stamp=stamp,
    )


def by_name(*curves: Curve) -> dict[tuple[str, str], Curve]:
    return {(each.data, each.contestant): each for each in curves}


def test_stored_curves_come_back(tmp_path: Path) -> None:
    curves = by_name(curve("starter", 0.25, 0.5), curve("torchvision", 0.125))
    write_curves(curves, tmp_path / "curves.json")
    assert read_curves(tmp_path / "curves.json") == curves


def test_the_last_point_is_compared_not_the_best() -> None:
    row = accuracy._row(
        by_name(curve("starter", 0.9, 0.6), curve("torchvision", 0.3)), "groceries8_voc", "starter"
    )
    assert row is not None
    assert row.verdict == "2.00 x (aim: AP50 0.76, AP 0.54)"
    assert "0.900 at 7m30s" in row.detail


def test_runs_of_unequal_time_are_not_compared() -> None:
    curves = by_name(curve("starter", 0.6), curve("torchvision", 0.3, allowed=600))
    row = accuracy._row(curves, "groceries8_voc", "starter")
    assert row is not None
    assert row.theirs == ""
    assert row.verdict.startswith("skipped")


def test_a_missing_set_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOXCREW_SHARED_DATA", str(tmp_path))
    monkeypatch.setattr(accuracy, "read_curves", dict)
    class_matches = [row.verdict for row in accuracy.rows("bccd_voc", "starter", write=False)]
    assert class_matches == ["skipped: no bccd_voc"] * len(accuracy.OURS)
    assert "bccd_voc starter: skipped: no bccd_voc" in capsys.readouterr().out


def test_the_words_of_a_request() -> None:
    assert parse_arguments(["accuracy", "bccd_voc", "starter", "time=30s"]) == (
        ["accuracy"],
        ["bccd_voc", "starter"],
        {"time": "30s"},
    )
    assert parse_arguments(["starter", "accuracy"]) == (["starter", "accuracy"], [], {})
    with pytest.raises(UsageError, match="no such benchmark"):
        parse_arguments(["stater"])
    with pytest.raises(UsageError, match="not known"):
        accuracy.rows("bccd_voc", "torchvison", write=False)


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    curves = by_name(curve("starter", 0.3, 0.6), curve("ultralytics", 0.1))
    plot_curves(curves, accuracy.SETS, accuracy.LABELS, tmp_path / "images" / "accuracy.png")
    assert (tmp_path / "images" / "accuracy.png").read_bytes().startswith(b"\x89PNG")
