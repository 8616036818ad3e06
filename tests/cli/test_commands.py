from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from boxcrew.data.detection.source import open_source
from boxcrew.data.detection.writers import WRITERS
from boxcrew.data.images.reading import read_image, write_image
from tests.helpers.made_examples import write_classes
from tests.helpers.misread import boxes_of, draw_images, write_set
from tests.helpers.tiny import BACKBONE, TINY

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_train_val_resume_and_predict_one_after_the_other(
    boxcrew: Call, tiny_set: Path, tmp_path: Path
) -> None:
    trained = boxcrew("train", f"data={tiny_set}", *TINY, "--steps", "2", "loader.workers=0", "--json")
    assert trained.code == 0, trained.err
    summary = json.loads(trained.out)
    run = tmp_path / summary["run"]
    assert run == tmp_path / "runs" / "detect" / "train"
    assert summary["state"] == "finished"
    assert summary["steps"] == 2
    assert "data wait" in trained.err
    assert (run / "plots" / "results.png").is_file()

    resumed = boxcrew("resume", f"run={run}", "steps=4", "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["steps"] == 4
    assert "continuing from this run's own checkpoint at step 2; init=" not in resumed.err

    again = boxcrew("resume", f"run={run}")
    assert again.code == 2
    assert "already finished at step 4" in again.err

    measured = boxcrew("val", f"run={run}", "split=test", "weights=both", "--json")
    assert measured.code == 0, measured.err
    reports = json.loads(measured.out)
    assert set(reports) == {"best", "last"}
    assert 0 <= reports["best"]["numbers"]["AP50"] <= 1

    photos = tiny_set / "JPEGImages"
    result = boxcrew("predict", f"run={run}", f"source={photos}", "score=0.01")
    assert result.code == 0, result.err
    out = tmp_path / "runs" / "detect" / "predict"
    assert len(list((out / "images").iterdir())) == len(list(photos.iterdir()))


def test_photos_to_predict_must_be_named_and_be_there(boxcrew: Call, tiny_run: Path) -> None:
    for words, code, message in (((), 2, "source= is missing"), (("source=no*.jpg",), 3, "no image found")):
        result = boxcrew("predict", f"run={tiny_run}", *words)
        assert (result.code, message in result.err) == (code, True), result.err


def test_val_of_a_finished_run_equals_what_training_said(boxcrew: Call, tiny_run: Path) -> None:
    measured = boxcrew("val", f"run={tiny_run}", "--json")
    stored = json.loads((tiny_run / "evaluation.json").read_text())
    numbers = json.loads(measured.out)["best"]["numbers"]
    assert numbers == pytest.approx(stored["numbers"], abs=1e-6)


@pytest.mark.usefixtures("undrawn")
def test_a_yaml_file_of_settings(boxcrew: Call, tiny_set: Path, tmp_path: Path) -> None:
    settings = {
        "recipe": "starter",
        "data": str(tiny_set),
        "steps": 1,
        "detector": {"backbone": BACKBONE, "size": 96},
        "init": "scratch",
        "trainable": ["*"],
        "loader": {"workers": 0},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(settings))
    result = boxcrew("train", "mine.yaml", "batch=3", "out=here")
    assert result.code == 0, result.err
    stored = yaml.safe_load((tmp_path / "here" / "config.yaml").read_text())
    assert stored["batch"] == 3
    assert stored["detector"]["backbone"] == BACKBONE
    assert stored["detector"]["class_backbone"] == "pplcnetv2_base"


def test_nothing_of_a_users_is_overwritten(
    boxcrew: Call, tiny_set: Path, tiny_run: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for words in (
        ("train", f"data={tiny_set}", f"out={mine}", *TINY, "steps=1"),
        ("data", "convert", str(tiny_set), f"out={mine}", "format=voc"),
        ("predict", f"run={tiny_run}", f"source={tiny_set / 'JPEGImages'}", f"out={mine}"),
        ("data", str(tiny_set), f"out={mine / 'thesis.txt'}"),
    ):
        assert boxcrew(*words).code == 2, words
    assert [p.name for p in mine.iterdir()] == ["thesis.txt"]
    assert (mine / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("format", WRITERS.names())
def test_data_convert(boxcrew: Call, tiny_set: Path, tmp_path: Path, format: str) -> None:
    result = boxcrew("data", "convert", str(tiny_set), "out=copy", f"format={format}")
    assert result.code == 0, result.err
    assert f"boxcrew train data={Path('copy')}" in result.out
    copy, original = open_source(tmp_path / "copy"), open_source(tiny_set)
    assert copy.format == format
    assert copy.classes == original.classes
    assert {n: len(r) for n, r in copy.splits.items()} == {n: len(r) for n, r in original.splits.items()}


@pytest.mark.parametrize("setting", ["coordinates=pixels", "data.coordinates=pixels"])
def test_data_reads_boxes_as_they_were_meant(boxcrew: Call, tmp_path: Path, setting: str) -> None:
    images = draw_images()
    write_set(tmp_path / "misread", images, format="yolo", unit="pixels")
    result = boxcrew("data", "misread")
    assert result.code == 0, result.err
    assert "data.coordinates=pixels" in " ".join(result.out.split())
    result = boxcrew("data", "convert", "misread", "out=copy", "format=coco", setting)
    assert result.code == 0, result.err
    for (boxes, labels), image in zip(boxes_of(open_source(tmp_path / "copy")), images, strict=True):
        np.testing.assert_allclose(boxes, image.boxes, rtol=0, atol=0.01)
        assert labels == list(image.labels)
    report = json.loads(boxcrew("data", "misread", setting, "--json").out)
    assert sum(split["boxes"] for split in report["splits"].values()) == 80


def test_settings_of_boxes_are_refused_where_they_mean_nothing(boxcrew: Call, tiny_set: Path) -> None:
    for words in (
        ("data", "shelf", "boxes=xyxy"),
        ("data", "shop_talk", "coordinates=pixels"),
        ("data", str(tiny_set), "first_class=1"),
    ):
        result = boxcrew(*words)
        assert result.code == 2, words
        assert f"data.{words[2].partition('=')[0]}" in result.err


def test_data_counts_and_names_what_is_wrong(boxcrew: Call, tiny_set: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_set, tmp_path / "photos")
    victim = sorted((tmp_path / "photos" / "JPEGImages").iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:1000])
    result = boxcrew("data", "photos", "out=sheet.png", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert [p["action"] for p in report["problems"]] == ["left out"]
    assert victim.name in report["problems"][0]["file"]
    assert report["problems"][0]["kind"] == "truncated-image"
    assert read_image(tmp_path / "sheet.png").shape[2] == 3


def test_data_of_examples_is_counted_and_shown(boxcrew: Call, tmp_path: Path) -> None:
    write_classes(tmp_path / "goods", {"cup": 6, "bowl": 8})
    (tmp_path / "goods" / "cup" / "9.png").write_bytes(b"not a photo")
    result = boxcrew("data", "goods", "out=sheet.png", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert (report["format"], report["kind"], report["classes"]) == ("folder", "images", ["bowl", "cup"])
    counts = [split["by_class"] for split in report["splits"].values()]
    assert {name: sum(by_class[name] for by_class in counts) for name in ("bowl", "cup")} == {
        "bowl": 8,
        "cup": 6,
    }
    assert "cup/9.png" in [problem["file"] for problem in report["problems"]]
    assert read_image(tmp_path / "sheet.png").shape[2] == 3
    again = boxcrew("data", "goods", "out=sheet.png")
    assert again.code == 2
    assert "exists already" in again.err


def test_data_of_texts_is_counted_and_cannot_be_drawn(boxcrew: Call, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("the tea is on the shelf, and the cup is beside it. " * 100)
    result = boxcrew("data", "book.txt")
    assert result.code == 0, result.err
    assert "tokens of" in result.out
    assert boxcrew("data", "book.txt", "out=sheet.png").code == 2


@pytest.mark.parametrize("prefix", ["", "task."])
def test_data_takes_the_words_of_training_about_examples(boxcrew: Call, tmp_path: Path, prefix: str) -> None:
    rows = [f"{index * 7 % 20},{'ab'[index % 2]},{index * 0.37}" for index in range(20)]
    (tmp_path / "table.csv").write_text("\n".join(["size,kind,length", *rows]))
    assert "task.label=" in boxcrew("data", "table.csv").err
    result = boxcrew("data", "table.csv", f"{prefix}label=kind", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["classes"] == ["a", "b"]
    write_classes(tmp_path / "goods", {"cup": 6, "bowl": 8})
    result = boxcrew("data", "goods", f"{prefix}size=16", "--json")
    assert json.loads(result.out)["shape"][:2] == [16, 16]
    (tmp_path / "book.txt").write_text("the tea is on the shelf. " * 100)
    result = boxcrew("data", "book.txt", f"{prefix}length=8", "--json")
    assert json.loads(result.out)["shape"] == [8 + 1]  # with what follows


def test_data_refuses_words_that_say_nothing(boxcrew: Call, tiny_set: Path) -> None:
    for word, result in (
        ("size=32", "size=: has no meaning for images with boxes"),
        ("lable=kind", "did you mean 'label'?"),
        ("task.steps=3", "task: no such setting"),
        ("task=fc", "task: no such setting"),
        ("length=1", "greater than or equal to 2"),
    ):
        refused = boxcrew("data", str(tiny_set), word)
        assert refused.code == 2, word
        assert result in refused.err


def test_predict_names_and_passes_over_what_it_cannot_read(
    boxcrew: Call, tiny_run: Path, tiny_set: Path, tmp_path: Path
) -> None:
    photos = tmp_path / "mixed"
    photos.mkdir()
    write_image(photos / "gray.jpg", np.full((50, 200, 3), 128, dtype=np.uint8))
    (photos / "broken.jpg").write_bytes(b"not a photo")
    result = boxcrew("predict", f"run={tiny_run}", f"source={photos}", "out=found")
    assert result.code == 0, result.err
    assert "broken.jpg" in result.out
    assert [p.name for p in (tmp_path / "found" / "images").iterdir()] == ["gray.jpg"]


def test_recipes_are_listed_and_shown(boxcrew: Call) -> None:
    listed = json.loads(boxcrew("recipes", "--json").out)
    assert {"starter", "ssd300_vgg16", "ssd512_vgg16"} <= listed.keys()
    shown = boxcrew("recipes", "ssd300_vgg16").out
    assert "size: 300" in shown


def test_settings_are_listed_and_searched(boxcrew: Call) -> None:
    everything, some = boxcrew("settings", "--json"), boxcrew("settings", "optim.*", "--json")
    keys = [setting["key"] for setting in json.loads(some.out)]
    assert "optim.rate" in keys
    assert all(key.startswith("optim.") for key in keys)
    assert len(json.loads(everything.out)) > 2 * len(keys)
    table = boxcrew("settings", "mixup")
    assert table.code == 0
    assert "augment.mixup" in table.out
    wrong = boxcrew("settings", "optim.ratte")
    assert wrong.code == 2
    assert "did you mean" in wrong.err or "optim.rate" in wrong.err


def test_settings_are_found_by_the_words_of_other_tools(boxcrew: Call) -> None:
    result = boxcrew("settings", "lr")
    assert "lr: here it is optim.rate=" in result.out
    assert "Peak learning rate" in " ".join(result.out.split())
    assert {"detector.size", "task.size"} == {
        setting["key"] for setting in json.loads(boxcrew("settings", "imgsz", "--json").out)
    }
    none = boxcrew("settings", "num_classes")
    assert (none.code, "classes are read from the data" in none.out) == (0, True)


@pytest.mark.parametrize("command", ["settings", "recipes"])
def test_lists_take_no_settings(boxcrew: Call, command: str) -> None:
    result = boxcrew(command, "optim.rate=3")
    assert result.code == 2
    assert "takes no settings" in result.err
