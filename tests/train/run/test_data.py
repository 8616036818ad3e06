"""The data of a run, as it is opened and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.core.types import Target
from boxcrew.data.checks.problem import Problem, ProblemKind
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.writers import write_source
from boxcrew.tasks.detection import DetectionData
from boxcrew.testing.sources import DrawnSource
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import SHOWN_PROBLEMS, load_task_data, print_problems
from tests.helpers.misread import draw_images, write_set


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_source(DrawnSource.open(tmp_path), tmp_path / "set", format="voc")
    return tmp_path / "set"


def log_text(screen: Screen, path: Path) -> str:
    screen.open_log(path)
    screen.close_log()
    return path.read_text()


def load(folder: Path, *, screen: Screen | None = None, **data: object) -> DetectionData:
    config = RunConfig.of({"epochs": 1, "data": {"path": str(folder), **data}})
    task_data = load_task_data(config, workers=2, screen=screen or Screen())
    assert isinstance(task_data, DetectionData)
    return task_data


def test_what_is_there_is_said_and_counted(folder: Path, tmp_path: Path) -> None:
    screen = Screen()
    data = load(folder, screen=screen)
    assert (len(data.train), len(data.val)) == (4, 4)
    assert f"data: {folder} (voc): train 4, val 4, test 4 images, 18 boxes, 3 classes" in log_text(
        screen, tmp_path / "log"
    )
    report = json.loads(json.dumps(data.report()))
    assert report["classes"] == ["tea pot", "Kanne", "茶"]
    for split in report["splits"].values():
        assert (split["images"], split["boxes"], split["images_without_boxes"]) == (4, 6, 1)
        assert sum(split["boxes_by_class"].values()) == 6


def test_a_directory_that_hides_the_embedded_set_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder.rename(tmp_path / "shelf")
    config, screen = RunConfig.of({"epochs": 1}).with_absolute_path(), Screen()
    assert load_task_data(config, workers=1, screen=screen).num_train == 4
    assert "data=shelf: the directory of that name here is used" in log_text(screen, tmp_path / "log")
    named = RunConfig.of({"epochs": 1, "data": {"path": "shelf", "format": "shelf"}}).with_absolute_path()
    assert load_task_data(named, workers=1, screen=Screen()).num_train == 480


def test_another_split_can_be_evaluated(folder: Path) -> None:
    data = load(folder, val="test")
    assert all(record.key in {r.key for r in data.source.split("test")} for record in data.val)
    with pytest.raises(DataError, match="no split 'dev'") as caught:
        load(folder, val="dev")
    assert caught.value.advice == "it has: train, val, test"


def test_many_problems_are_said_in_short(folder: Path, tmp_path: Path) -> None:
    for path in sorted((folder / "JPEGImages").iterdir()):
        if "train" not in path.name:
            path.write_bytes(b"no image")
    screen = Screen()
    with pytest.raises(DataError):
        load(folder, val="absent", screen=screen)
    data = load(folder, val="train", screen=screen)
    count = len(data.problems)
    assert count > SHOWN_PROBLEMS
    text = log_text(screen, tmp_path / "log")
    assert text.count("warning") == SHOWN_PROBLEMS + 1
    assert f"and {count - SHOWN_PROBLEMS} more problems in the data; data_report.json names all" in text
    counted = [line.split() for line in text.splitlines() if " not-an-image " in line]
    assert [line[2:] for line in counted] == [["not-an-image", "8"]]


def test_the_first_of_every_kind_is_shown(tmp_path: Path) -> None:
    def problem(kind: ProblemKind, number: int) -> Problem:
        return Problem(kind=kind, file=f"{number}.txt", message="is odd", action="repaired")

    screen = Screen()
    many = [problem("box-swapped", i) for i in range(100)]
    print_problems([*many, problem("box-nan", 100), problem("leak", 101)], screen, rest="")
    shown = [line for line in log_text(screen, tmp_path / "log").splitlines() if "is odd" in line]
    assert [line.split()[3] for line in shown[:4]] == ["0.txt:", "100.txt:", "101.txt:", "1.txt:"]
    assert len(shown) == SHOWN_PROBLEMS


def test_a_cause_is_said_before_all_else(tmp_path: Path) -> None:
    problems = [Problem("box-outside", f"{i}.txt", "is outside", "left out") for i in range(9)]
    cause = Problem("cause", "set", "these are pixels: data.coordinates=pixels", "noted")
    screen = Screen()
    print_problems([cause, *problems], screen, rest="")
    first, *others = log_text(screen, tmp_path / "log").splitlines()
    assert "warning: set: these are pixels: data.coordinates=pixels" in first
    assert not any("pixels" in line or "cause" in line for line in others)


def test_boxes_read_as_meant_are_trained_on_and_the_advice_says_how(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "misread", draw_images(), format="yolo", unit="pixels")
    with pytest.raises(DataError, match="no training image has a box") as caught:
        load(folder)
    assert caught.value.advice.endswith("data.coordinates=pixels")
    assert sum(len(record.target) for record in load(folder, coordinates="pixels").source.records) == 80


def test_one_image_cannot_be_split_and_the_advice_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no split 'val'") as caught:
        load(write_set(tmp_path / "one", draw_images(1), format="voc"))
    assert caught.value.advice.startswith("it has a single usable image: add another")


def test_strict_stops_at_what_is_more_than_noted(folder: Path) -> None:
    noted = load(folder, strict=True).problems
    assert {problem.action for problem in noted} == {"noted"}
    for name in ("train_00", "train_01"):
        page = next((folder / "Annotations").glob(f"*{name[-2:]}*.xml"))
        page.write_text("<annotation>")
        with pytest.raises(DataError, match=r"problems, and data\.strict=true; the first: .*\.xml") as caught:
            load(folder, strict=True)
    assert f"{folder}: 2 problems" in caught.value.message
    assert caught.value.exit_code == 3


def test_a_set_without_a_box_cannot_be_learned_from(tmp_path: Path) -> None:
    source = DrawnSource.open(tmp_path)

    def without(record: Record) -> Record:
        return Record(
            key=record.key, path=None, width=record.width, height=record.height, target=Target.of([], [])
        )

    source.splits = {name: tuple(map(without, records)) for name, records in source.splits.items()}
    write_source(source, tmp_path / "set", format="voc")
    with pytest.raises(DataError, match="no training image has a box"):
        load(tmp_path / "set")
