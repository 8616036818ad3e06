"""YOLO as annotation tools and detectors write it: Darknet's files, polygons, rotated boxes, confidences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.images.reading import write_image
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

LINE = "1 0.5 0.5 0.5 0.4\n"
BOX = [10, 9, 30, 21]


def put(root: Path, image: str, label: str, text: str = LINE) -> None:
    for name in (image, label):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    write_image(root / image, np.zeros((30, 40, 3), dtype=np.uint8))
    (root / label).write_text(text)


def assert_boxes(source: Source, *wanted: list[int]) -> None:
    """Check that every image has these boxes, the first of `jam`, or just the usual one."""
    assert source.format == "yolo"
    assert source.classes == ("tea", "jam")
    for record in source.records:
        np.testing.assert_allclose(record.target.boxes, wanted or [BOX], atol=1e-4, err_msg=record.key)
        assert record.target.labels[0] == 1


def cvat(root: Path, **entries: str) -> Path:
    """Write what CVAT exports as YOLO 1.1, with two frames of the same names in each subset."""
    lines = ["classes = 2", *(f"{key} = {entry}" for key, entry in entries.items())]
    for key, entry in entries.items():
        names = [f"obj_{key}_data/frame_00000{i}" for i in range(2)]
        for name in names:
            put(root, f"{name}.PNG".replace("PNG", "png"), f"{name}.txt")
        (root / Path(entry).name).write_text("".join(f"data/{name}.png\n" for name in names))
    (root / "obj.data").write_text("\n".join([*lines, "names = data/obj.names", "backup = backup/"]))
    (root / "obj.names").write_text("tea\njam\n")
    return root


def test_cvat_yolo_1_1(tmp_path: Path) -> None:
    cvat(tmp_path, train="data/train.txt", valid="data/valid.txt", test="data/test.txt")
    for path in (tmp_path, tmp_path / "obj.data"):
        source = open_source(path)
        assert split_sizes(source) == {"train": 2, "val": 2, "test": 2}
        assert "obj_valid_data/frame_000001.png" in records_by_key(source)
        assert_boxes(source)
        assert source.problems == ()


def test_cvat_yolo_1_1_with_one_subset(tmp_path: Path) -> None:
    source = open_source(cvat(tmp_path, train="data/train.txt"))
    assert split_sizes(source) == {"train": 1, "val": 1}
    assert_boxes(source)
    assert "has no validation split" in problem_lines(source)


def test_cvat_ultralytics_with_a_list(tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path, f"images/train/{name}.jpg", f"labels/train/{name}.txt")
    (tmp_path / "train.txt").write_text("data/images/train/a.jpg\nimages/train/b.jpg\n")
    (tmp_path / "data.yaml").write_text("names:\n  0: tea\n  1: jam\npath: .\ntrain: train.txt\n")
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 1, "val": 1}
    assert_boxes(source)


def darknet(root: Path, text: str) -> Path:
    for name in ("a", "b"):
        put(root, f"images/{name}.jpg", f"labels/{name}.txt")
    (root / "train.list").write_text("images/a.jpg\n")
    (root / "val.list").write_text("/home/somebody/darknet/shop/images/b.jpg\n")
    (root / "shop.names").write_text("tea\njam\n")
    (root / "shop.data").write_text(text)
    return root


@pytest.mark.parametrize("folder", ["", "/home/somebody/darknet/cfg/"])
def test_darknet(folder: str, tmp_path: Path) -> None:
    text = f"# shop\nclasses=2\ntrain={folder}train.list\nvalid={folder}val.list\nnames={folder}shop.names\n"
    source = open_source(darknet(tmp_path, text))
    assert {split: records[0].key for split, records in source.splits.items()} == {
        "train": "images/a.jpg",
        "val": "images/b.jpg",
    }
    assert_boxes(source)
    assert source.problems == ()


def test_darknet_files_with_faults(tmp_path: Path) -> None:
    darknet(tmp_path, "classes=5\ntrain=train.list\nvalid=train.list\nnames=shop.names\n")
    messages = problem_lines(open_source(tmp_path))
    assert "shop.data: classes is 5, but there are 2 names; they are used (noted)" in messages
    assert "val has the same images as train" in messages
    source = open_source(darknet(tmp_path, "classes=3\ntrain=train.list\nnames=gone.names\n"))
    assert source.classes == ("class0", "class1", "class2")
    assert "its file of names is missing" in problem_lines(source)
    darknet(tmp_path, "train=train.list\nnames=gone.names\n")
    with pytest.raises(DataError, match=r"shop\.data: has no class names"):
        open_source(tmp_path)
    darknet(tmp_path, "train=gone.list\nnames=shop.names\n")
    with pytest.raises(DataError, match=r"train: gone\.list does not exist"):
        open_source(tmp_path)
    (tmp_path / "other.data").write_text("train=train.list\nnames=shop.names\n")
    with pytest.raises(DataError, match=r"other\.data, shop\.data"):
        open_source(tmp_path)


def test_other_data_files_are_not_darknets(tmp_path: Path) -> None:
    (tmp_path / "iris.data").write_text("5.1,3.5,1.4,0.2,Iris-setosa\n")
    (tmp_path / "raw.data").write_bytes(b"\xff\xfe\x00train=names=")
    with pytest.raises(DataError, match="not a data set in any known format"):
        open_source(tmp_path)


def test_roboflow(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        name = f"shelf_{split}_jpg.rf.0a1b2c"
        put(tmp_path, f"{split}/images/{name}.jpg", f"{split}/labels/{name}.txt", LINE.rstrip())
    splits = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\n"
    names = "nc: 2\nnames: ['tea', 'jam']\n\nroboflow:\n  workspace: shop\n  version: 1\n"
    (tmp_path / "data.yaml").write_text(splits + names)
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 1, "val": 1, "test": 1}
    assert_boxes(source)
    assert source.problems == ()


def test_label_studio(tmp_path: Path) -> None:
    for name in ("1f0c2d3e-a", "9a8b7c6d-b"):
        put(tmp_path, f"images/{name}.jpg", f"labels/{name}.txt")
    (tmp_path / "classes.txt").write_text("tea\njam\n")
    (tmp_path / "notes.json").write_text('{"categories": [{"id": 0, "name": "tea"}], "info": {"year": 2024}}')
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 1, "val": 1}
    assert_boxes(source)


ULTRALYTICS = {
    "segmentation": ("1 0.25 0.3 0.75 0.3 0.75 0.7 0.5 0.7 0.25 0.5\n", "box-derived", "boxes of 2 objects"),
    "rotated boxes": ("1 0.5 0.3 0.75 0.5 0.5 0.7 0.25 0.5\n", "box-derived", "polygons or rotated boxes"),
    "confidences": ("1 0.5 0.5 0.5 0.4 0.87\n", "label-confidence", "a confidence and not used"),
    "mixed": (f"{LINE}1 0.5 0.5 0.5 0.4 0.87\n", "label-confidence", "a confidence and not used"),
}


@pytest.mark.parametrize("kind", ULTRALYTICS)
def test_ultralytics(kind: str, tmp_path: Path) -> None:
    text, problem_kind, message = ULTRALYTICS[kind]
    for split in ("train", "val"):
        put(tmp_path, f"images/{split}/{split}.jpg", f"labels/{split}/{split}.txt", text)
    (tmp_path / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [tea, jam]\n")
    source = open_source(tmp_path)
    assert_boxes(source, *[BOX] * len(text.splitlines()))
    (problem,) = source.problems
    assert (problem.kind, problem.action, problem.count) == (problem_kind, "noted", 2)
    assert message in problem.message
