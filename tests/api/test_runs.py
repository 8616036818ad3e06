"""The last lines of a run."""

from __future__ import annotations

from pathlib import Path

from boxcrew.api.runs import _named_results


def test_only_results_that_are_there_are_named(tmp_path: Path) -> None:
    assert _named_results(tmp_path) == ""
    (tmp_path / "plots").mkdir()
    (tmp_path / "weights").mkdir()
    (tmp_path / "summary.json").touch()
    assert _named_results(tmp_path) == " (summary.json)"
    (tmp_path / "weights" / "last.safetensors").touch()
    (tmp_path / "plots" / "results.png").touch()
    assert _named_results(tmp_path) == " (weights/last.safetensors, plots/, summary.json)"
    (tmp_path / "weights" / "best.safetensors").touch()
    assert _named_results(tmp_path) == " (weights/best.safetensors, plots/, summary.json)"
