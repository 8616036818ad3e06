"""Comparisons: rows of runs, tables, and the settings that all runs share."""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from boxcrew.compare import trainings
from boxcrew.compare.results import markdown
from boxcrew.compare.rows import Row, require_comparable, short_table, table
from boxcrew.compare.settings import ALL, CompareConfig
from boxcrew.compare.trainings import TrainingsOutcome, open_comparison, stored_comparison, train_all
from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.detectors import build_detector
from boxcrew.recipes import RECIPES
from boxcrew.report.compare import compare_page
from boxcrew.report.plots.compare import plot_scatter
from boxcrew.tasks.detection import require_detection
from boxcrew.train.config import RunConfig
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen

ROW = Row(
    name="yolo",
    folder="runs/yolo",
    task="detection",
    data="photos",
    scores={"AP": 0.5, "AP50": 0.75, "APs": None},
    stage_seconds={"training": 61.0},
    milliseconds={"pre": 1.0, "network": 20.0, "post": 2.0},
    peak_memory_bytes=1 << 30,
    num_parameters=4_000_000,
    weight_bytes=16_000_000,
    threshold=0.4,
)
STAGED = replace(
    ROW,
    name="rcnn",
    stage_seconds={"1-finetune": 60.0, "2-svm": 30.0},
    milliseconds={"pre": 1.0, "proposals": 200.0, "network": 500.0, "post": 3.0},
)


def test_a_row_has_scores_times_by_part_and_costs() -> None:
    columns, cells = table([ROW, STAGED])
    yolo, rcnn = (dict(zip(columns, row, strict=True)) for row in cells)
    assert (yolo["AP"], yolo["APs"], yolo["proposals ms"]) == ("0.500", "-", "-")
    assert (rcnn["proposals ms"], rcnn["network ms"]) == ("200.0", "500.0")
    assert rcnn["training"] == "1m30s (finetune 1m00s, svm 30s)"
    assert yolo["parameters"] == "4.0 M"
    columns, cells = short_table([ROW, STAGED])
    assert dict(zip(columns, cells[1], strict=True))["ms a sample"] == "704.0"


def test_runs_of_other_tasks_are_refused_and_other_data_is_named() -> None:
    assert require_comparable([ROW, STAGED]) == ""
    assert "others, photos" in require_comparable([ROW, replace(STAGED, data="others")])
    with pytest.raises(UsageError, match=r"runs/yolo \(gan\)"):
        require_comparable([ROW, replace(STAGED, task="gan")])


def test_markdown_and_page(tmp_path: Path) -> None:
    columns, cells = table([ROW])
    assert markdown(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    plot_scatter([("yolo", 23.0, 0.5), ("<rcnn>", 700.0, 0.4)], tmp_path / "scatter.png", metric="AP")
    cells = [(f"<b>{cells[0][0]}", *cells[0][1:])]
    page = compare_page(columns, cells, [tmp_path / "scatter.png"], names="", warning="other data")
    assert "&lt;b&gt;yolo" in page
    assert "data:image/png;base64," in page
    assert "http://" not in page
    assert "https://" not in page
    assert "other data" in page


def test_all_detectors_share_a_backbone() -> None:
    config = CompareConfig.of({"detectors": "all", "settings": {"data": "photos", "steps": 3, "size": 128}})
    configs = config.configs()
    assert tuple(configs) == ALL
    assert set(ALL) <= set(RECIPES.names())
    for name, run in configs.items():
        tree = run.tree()
        assert tree["detector"]["backbone"] == "pplcnetv2_base", name
        assert tree["init"]["weights"] == "pplcnetv2"
        assert run.steps == 3
        network = build_detector(require_detection(run.task).detector, ("cup", "pot"))
        names = [f"detector.{parameter}" for parameter, _ in network.named_parameters()]
        for pattern in run.trainable:
            assert fnmatch.filter(names, pattern), (name, pattern)
    assert not any("backbone" in pattern for pattern in configs["sppnet"].trainable)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "give either detectors= or runs="),
        ({"detectors": "yolo", "runs": "a"}, "give either detectors= or runs="),
        ({"runs": "a,b", "settings": {"steps": 3}}, "steps=: has no effect"),
    ],
)
def test_wrong_settings(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        CompareConfig.of(settings)


@pytest.mark.parametrize(("name", "problem"), [("yol", "no such recipe"), ("gan", "not a detector")])
def test_wrong_recipes(name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        CompareConfig.of({"detectors": name}).configs()


def test_a_comparison_goes_on_with_its_own_settings_only(tmp_path: Path) -> None:
    config = CompareConfig.of({"detectors": "yolo,ssdlite", "settings": {"data": "photos", "steps": 3}})
    folder = tmp_path / "new"
    open_comparison(config, folder)
    open_comparison(config, folder)
    assert stored_comparison(folder).configs() == config.configs()
    other = CompareConfig.of({"detectors": "yolo", "settings": {"data": "photos", "steps": 3}})
    with pytest.raises(UsageError, match=r"detectors=yolo: .*new was started with yolo,ssdlite"):
        open_comparison(other, folder)
    fewer = CompareConfig.of({"detectors": "yolo,ssdlite", "settings": {"data": "photos"}})
    with pytest.raises(UsageError, match=r"steps=None: .* was started with 3"):
        open_comparison(fewer, folder)
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a comparison"):
        open_comparison(config, tmp_path)


def test_a_detector_that_fails_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def train(config: RunConfig, screen: Screen) -> Outcome:
        out = config.local_out
        assert out is not None
        trained.append(out.name)
        if out.name == "yolo":
            raise BoxcrewError("the disk is full")
        return Outcome(folder=out, task_data=Mock(), summary={}, interrupted=False)

    monkeypatch.setattr(trainings, "train_run", train)
    (tmp_path / "ssdlite").mkdir()
    (tmp_path / "ssdlite" / "config.yaml").write_text("of a process that was killed at once")
    configs = {name: RECIPES.get(name)() for name in ("yolo", "ssdlite")}
    outcome = train_all(configs, tmp_path, Screen())
    assert trained == ["yolo", "ssdlite"]
    assert outcome == TrainingsOutcome(interrupted=False, failed={"yolo": "the disk is full"})
    assert not (tmp_path / "ssdlite").exists(), "a run without a checkpoint begins anew"


def test_paths_are_stored_so_that_a_comparison_can_be_resumed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    config = CompareConfig.of({"detectors": "yolo", "settings": {"data": "photos"}}).with_absolute_paths()
    assert config.settings["data"] == str(tmp_path / "photos")
    embedded = CompareConfig.of({"detectors": "yolo", "settings": {"data": "shelf"}})
    assert embedded.with_absolute_paths() == embedded


def test_several_processes_are_refused() -> None:
    config = CompareConfig.of({"detectors": "yolo", "settings": {"data": "shelf", "deploy": {"replicas": 2}}})
    with pytest.raises(UsageError, match="trains in one process"):
        config.configs()
