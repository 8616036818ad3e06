"""YOLO text files, with Ultralytics' data.yaml and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.reading import write_image
from boxcrew.testing.sources import check_invariants
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

LINE = "0 0.5 0.5 0.5 0.5\n"


def put(image: Path, label: Path | None, text: str = LINE) -> None:
    image.parent.mkdir(parents=True, exist_ok=True)
    write_image(image, np.zeros((30, 40, 3), dtype=np.uint8))
    if label:
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(text)


def standard(
    root: Path, yaml: str | None = "train: images/train\nval: images/val\nnames: [tea, jam]\n"
) -> Path:
    for split, num in (("train", 3), ("val", 2)):
        for i in range(num):
            name = f"{split}/{split}{i}"
            put(root / "images" / f"{name}.jpg", root / "labels" / f"{name}.txt")
    if yaml is not None:
        (root / "data.yaml").write_text(yaml)
    return root


def test_yaml_or_its_folder(tmp_path: Path) -> None:
    standard(tmp_path)
    for path in (tmp_path, tmp_path / "data.yaml"):
        source = open_source(path)
        assert source.format == "yolo"
        assert source.classes == ("tea", "jam")
        assert split_sizes(source) == {"train": 3, "val": 2}
        assert source.problems == ()
    record = records_by_key(source)["images/train/train0.jpg"]
    np.testing.assert_array_equal(record.target.boxes, [[10, 7.5, 30, 22.5]])


def test_lines_of_a_label_file(tmp_path: Path) -> None:
    standard(tmp_path)
    lines = [
        "1 0.5 0.5 1 1",
        "0 0.1 0.2 0.6 0.2 0.35 0.9",  # a polygon
        "",
        "1.0 0.25 0.5 0.5 0.5",
        "2 0.5 0.5 0.5 0.5",
        "-1 0.5 0.5 0.5 0.5",
        "0.5 0.5 0.5 0.5 0.5",
        "0 0.5 0.5 0.5",
        "0 0.5 0.5 0.5 0.5 0.9",  # a confidence
        "tea 0.5 0.5 0.5 0.5",
        "0 nan 0.5 0.5 0.5",
        "0 0.5 0.5 -0.5 0.5",
        "0 0.5 0.5 0 0.5",
        "0 1.0 0.5 0.5 0.5",
        "0 20 15 10 10",
        "0 0.5 0.5 0.5 0.5 17",
        "0 0.1 0.2 0.6 nan 0.35 0.9",
    ]
    (tmp_path / "labels" / "train" / "train0.txt").write_text("\n".join(lines))
    source = open_source(tmp_path)
    check_invariants(source)
    target = records_by_key(source)["images/train/train0.jpg"].target
    whole, polygon, left = (0, 0, 40, 30), (4, 6, 24, 27), (0, 7.5, 20, 22.5)
    swapped, right = (10, 7.5, 30, 22.5), (30, 7.5, 40, 22.5)
    middle = (10, 7.5, 30, 22.5)
    wanted = np.array([whole, polygon, left, middle, swapped, right], dtype=np.float32)
    np.testing.assert_allclose(target.boxes, wanted, atol=1e-4)
    assert target.labels.tolist() == [1, 0, 1, 0, 0, 0]
    messages = problem_lines(source)
    for number, expected in {
        5: "there is no class 2; classes are 0 to 1",
        6: "there is no class -1",
        7: "there is no class 0.5",
        8: "has 3 numbers after the class",
        10: "is not a line of numbers: tea",
        11: "not a number",
        12: "has its corners swapped",
        13: "is empty",
        14: "extends beyond the image",
        15: "lies outside",
        16: "has 5 numbers after the class",
        17: "not a number",
    }.items():
        assert f"labels/train/train0.txt line {number}: " in messages, number
        assert expected in messages, expected


def test_background_and_lone_labels(tmp_path: Path) -> None:
    standard(tmp_path)
    (tmp_path / "labels" / "train" / "train0.txt").write_text("")
    (tmp_path / "labels" / "train" / "train1.txt").unlink()
    (tmp_path / "labels" / "train" / "ghost.txt").write_text(LINE)
    (tmp_path / "labels" / "train" / "classes.txt").write_text("tea\njam\n")
    (tmp_path / "labels" / "val" / "val0.txt").write_bytes(b"\xff\xfe\x00")
    source = open_source(tmp_path)
    assert [len(record.target) for record in source.split("train")] == [0, 0, 1]
    assert [(problem.kind, problem.file) for problem in source.problems] == [
        ("empty-annotation", "labels/train/train0.txt"),
        ("image-without-annotation", "images/train/train1.jpg"),
        ("unreadable-annotation", "labels/val/val0.txt"),
        ("empty-annotation", "labels/val/val0.txt"),
        ("annotation-without-image", "labels/train/ghost.txt"),
    ]
    assert "labels/train/ghost.txt: has no image (left out)" in problem_lines(source)
    assert "labels/val/val0.txt: cannot be read as text" in problem_lines(source)


def test_unreadable_images_are_left_out(tmp_path: Path) -> None:
    standard(tmp_path)
    (tmp_path / "images" / "train" / "train0.jpg").write_bytes(b"<html>")
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 2, "val": 2}
    assert "train0.jpg: not an image of a known kind (left out)" in problem_lines(source)


@pytest.mark.parametrize("names", ["classes.txt", "obj.names", "labels/classes.txt"])
def test_without_yaml(names: str, tmp_path: Path) -> None:
    standard(tmp_path, yaml=None)
    (tmp_path / names).write_text("tea\njam\nhoney\n")
    source = open_source(tmp_path)
    assert source.format == "yolo"
    assert source.classes == ("tea", "jam", "honey")
    assert split_sizes(source) == {"train": 3, "val": 2}
    assert source.problems == ()


def test_without_names_classes_are_numbered(tmp_path: Path) -> None:
    standard(tmp_path, yaml=None)
    (tmp_path / "labels" / "val" / "val0.txt").write_text("2 0.5 0.5 0.1 0.1\n99999999 0.5 0.5 0.1 0.1\n")
    source = open_source(tmp_path)
    assert source.classes == ("class0", "class1", "class2")
    assert "there is no class 1e+08" in problem_lines(source)


def test_flat_images_and_labels_are_split_by_the_seed(tmp_path: Path) -> None:
    for i in range(10):
        put(tmp_path / "images" / f"{i}.jpg", tmp_path / "labels" / f"{i}.txt")
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 8, "val": 2}
    assert "has no validation split" in problem_lines(source)


def test_labels_beside_the_images(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        for i in range(2):
            put(tmp_path / split / f"{split}{i}.jpg", tmp_path / split / f"{split}{i}.txt")
    write_image(tmp_path / "preview.png", np.zeros((8, 8, 3), dtype=np.uint8))
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 2, "val": 2}
    assert all(len(record.target) == 1 for record in records_by_key(source).values())
    assert problem_lines(source) == "preview.png: is not in any of the split folders (left out)"


def test_labels_beside_the_images_of_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(5):
        put(tmp_path / f"{i}.jpg", tmp_path / f"{i}.txt")
    monkeypatch.chdir(tmp_path)
    source = open_source(Path(), format="yolo")
    assert [len(record.target) for record in records_by_key(source).values()] == [1] * 5


def test_folders_inside_splits(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        put(tmp_path / split / "images" / "a.jpg", tmp_path / split / "labels" / "a.txt")
    assert split_sizes(open_source(tmp_path)) == {"train": 1, "val": 1, "test": 1}


def test_images_without_any_label_are_no_data_set(tmp_path: Path) -> None:
    put(tmp_path / "images" / "a.jpg", None)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match="not a data set in any known format"):
        open_source(tmp_path)
    with pytest.raises(DataError, match="is not a YOLO data set"):
        open_source(tmp_path, format="yolo")


def test_coco128(shared_data: Path) -> None:
    for path in (shared_data / "coco128_yolo", shared_data / "coco128_yolo" / "data.yaml"):
        source = open_source(path)
        assert source.format == "yolo"
        assert len(source.classes) == 80
        assert split_sizes(source) == {"train": 128, "val": 128}
    boxes = {split: sum(len(record.target) for record in records) for split, records in source.splits.items()}
    lone = [problem for problem in source.problems if problem.message == "has no image"]
    bare = [problem for problem in source.problems if "used as background" in problem.message]
    assert (len(lone), len(bare), len(source.problems)) == (2, 2, 4)
    in_lone = sum(len((source.root / problem.where).read_text().splitlines()) for problem in lone)
    assert boxes == {"train": 941 - in_lone, "val": 898}
    check_invariants(source)
