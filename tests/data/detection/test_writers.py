"""Written files are what other programs expect; flags that a format cannot store are reported."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import yaml
from PIL import Image as Pillow
from pycocotools.coco import COCO

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Target
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.writers import WRITERS, file_stems, write_source
from boxcrew.testing.sources import DrawnSource, check_same


@pytest.fixture
def drawn(tmp_path: Path) -> Source:
    return DrawnSource.open(tmp_path)


def with_keys(*keys: str) -> Source:
    target = Target.of([[1, 1, 5, 5]], [0])
    records = tuple(Record(key=key, path=None, width=8, height=8, target=target) for key in keys)
    splits = {"train": records[:1], "val": records[1:]}
    return DrawnSource(root=Path(), classes=("tea",), splits=splits)


def test_stems_are_short_where_they_can_be_and_unique() -> None:
    assert file_stems(with_keys("a/one.jpg", "b/two.v2.png", "c/three.v2")) == {
        "a/one.jpg": "one",
        "b/two.v2.png": "two.v2",
        "c/three.v2": "three.v2",
    }
    stems = file_stems(with_keys("a/x.jpg", "b/x.jpg", "b/X.png", "a_x", "y.jpg"))
    assert stems["a/x.jpg"] == "a_x"
    assert stems["y.jpg"] == "y"
    assert len({stem.casefold() for stem in stems.values()}) == 5


@pytest.mark.parametrize("format", WRITERS.names())
def test_colliding_names_survive(format: str, tmp_path: Path) -> None:
    source = with_keys("a/x.jpg", "b/x.jpg", "b/X.png", "a_x", "img.v2", "img.v3", "../.p.jpg.png", " q .png")
    write_source(source, tmp_path / "set", format=format)
    read = open_source(tmp_path / "set")
    assert read.problems == ()
    check_same(source, read, tolerance=1e-3)


@pytest.mark.parametrize("format", WRITERS.names())
def test_image_files_are_copied_byte_for_byte(format: str, drawn: Source, tmp_path: Path) -> None:
    write_source(drawn, tmp_path / "first", format="yolo")
    exif = Pillow.Exif()
    exif[0x0112] = 6
    turned = tmp_path / "first" / "images" / "train" / "train_01.png"
    Pillow.open(turned).save(turned, exif=exif)
    first = open_source(tmp_path / "first")
    write_source(first, tmp_path / "second", format=format)
    second = open_source(tmp_path / "second")
    check_same(first, second, tolerance=1e-3)
    for split in first.splits:
        copies = {Path(record.key).stem: record.path for record in second.split(split)}
        for record in first.split(split):
            copied = copies[Path(record.key).stem]
            assert record.path
            assert copied
            assert copied.read_bytes() == record.path.read_bytes()


def test_voc_files(drawn: Source, tmp_path: Path) -> None:
    (problem,) = write_source(drawn, tmp_path / "set", format="voc")
    assert "3 crowd objects" in problem.message
    assert (tmp_path / "set" / "classes.txt").read_text(encoding="utf-8").split("\n")[:2] == [
        "tea pot",
        "Kanne",
    ]
    assert (tmp_path / "set" / "ImageSets" / "Main" / "val.txt").read_text().split() == [
        f"val_{i:02d}" for i in range(4)
    ]
    xml = ET.parse(tmp_path / "set" / "Annotations" / "train_01.xml").getroot()
    record = drawn.split("train")[1]
    assert xml.findtext("filename") == "train_01.png"
    assert xml.findtext("size/width") == str(record.width)
    assert xml.findtext("object/bndbox/xmax") == str(record.width)  # whole numbers have no point
    assert xml.findtext("object/truncated") == "0"


def test_coco_files_are_read_by_pycocotools(drawn: Source, tmp_path: Path) -> None:
    assert write_source(drawn, tmp_path / "set", format="coco") == ()
    file = tmp_path / "set" / "annotations" / "instances_train.json"
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(file)
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == list(drawn.classes)
    for image, record in zip(coco.loadImgs(coco.getImgIds()), drawn.split("train"), strict=True):
        boxes = [annotation["bbox"] for annotation in coco.loadAnns(coco.getAnnIds(image["id"]))]
        wanted = record.target.boxes.copy()
        wanted[:, 2:] -= wanted[:, :2]
        np.testing.assert_allclose(np.reshape(boxes, (-1, 4)), wanted, atol=1e-4)
    assert "area" in json.loads(file.read_text())["annotations"][0]


def test_yolo_files(drawn: Source, tmp_path: Path) -> None:
    problems = write_source(drawn, tmp_path / "set", format="yolo")
    assert [problem.message.split()[1] for problem in problems] == ["difficult", "crowd"]
    content = yaml.safe_load((tmp_path / "set" / "data.yaml").read_text(encoding="utf-8"))
    assert content["names"] == dict(enumerate(drawn.classes))
    assert {split: content[split] for split in drawn.splits} == {
        "train": "images/train",
        "val": "images/val",
        "test": "images/test",
    }
    line = (tmp_path / "set" / "labels" / "train" / "train_01.txt").read_text().split()
    assert [float(word) for word in line[1:]] == [0.5, 0.5, 1, 1]  # the whole image
    assert (tmp_path / "set" / "labels" / "train" / "train_00.txt").read_text() == ""


def test_labelme_files(drawn: Source, tmp_path: Path) -> None:
    assert write_source(drawn, tmp_path / "set", format="labelme") == ()
    content = json.loads((tmp_path / "set" / "train" / "train_01.json").read_text(encoding="utf-8"))
    record = drawn.split("train")[1]
    assert content["imagePath"] == "train_01.png"
    assert (content["imageWidth"], content["imageHeight"]) == (record.width, record.height)
    (shape,) = content["shapes"]
    assert shape["label"] == drawn.classes[record.target.labels[0]]
    assert shape["shape_type"] == "rectangle"
    assert shape["points"] == [[0, 0], [record.width, record.height]]
    assert (tmp_path / "set" / "classes.txt").read_text(encoding="utf-8").splitlines() == [*drawn.classes]


def test_cvat_files(drawn: Source, tmp_path: Path) -> None:
    assert write_source(drawn, tmp_path / "set", format="cvat") == ()
    tree = ET.parse(tmp_path / "set" / "annotations.xml").getroot()
    assert tree.findtext("version") == "1.1"
    assert [label.findtext("name") for label in tree.iterfind("meta/project/labels/label")] == [
        *drawn.classes
    ]
    images = {image.get("name"): image for image in tree.iterfind("image")}
    assert [image.get("id") for image in images.values()] == [str(i) for i in range(12)]
    assert images["val_02.png"].get("subset") == "Validation"
    assert (tmp_path / "set" / "images" / "Validation" / "val_02.png").is_file()
    record = drawn.split("train")[1]
    (box,) = images["train_01.png"]
    assert box.get("label") == drawn.classes[record.target.labels[0]]
    sides = [float(box.get(side, "")) for side in ("xtl", "ytl", "xbr", "ybr")]
    assert sides == [0, 0, record.width, record.height]


def test_label_studio_files(drawn: Source, tmp_path: Path) -> None:
    assert write_source(drawn, tmp_path / "set", format="label_studio") == ()
    tasks = json.loads((tmp_path / "set" / "label_studio.json").read_text(encoding="utf-8"))
    assert [task["id"] for task in tasks] == list(range(1, 13))
    assert tasks[1]["data"]["image"] == "/data/local-files/?d=images/train/train_01.png"
    (annotation,) = tasks[1]["annotations"]
    (result,) = annotation["result"]
    assert result["type"] == "rectanglelabels"
    sides = [result["value"][side] for side in ("x", "y", "width", "height")]
    assert sides == pytest.approx([0, 0, 100, 100])
    assert (tmp_path / "set" / "classes.txt").read_text(encoding="utf-8").splitlines() == [*drawn.classes]


@pytest.mark.parametrize("format", WRITERS.names())
def test_progress_counts_the_images(format: str, drawn: Source, tmp_path: Path) -> None:
    seen = list[tuple[int, int]]()
    write_source(drawn, tmp_path / "set", format=format, progress=lambda *counts: seen.append(counts))
    assert seen == [(number, 12) for number in range(1, 13)]


@pytest.mark.parametrize("format", WRITERS.names())
def test_no_problem_where_nothing_is_lost(format: str, tmp_path: Path) -> None:
    assert write_source(with_keys("a", "b"), tmp_path / "set", format=format) == ()


def test_unknown_format_is_refused_before_anything_is_made(drawn: Source, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'yolo'"):
        write_source(drawn, tmp_path / "set", format="yolov8")
    assert not (tmp_path / "set").exists()


def test_a_file_in_the_way_is_not_overwritten(drawn: Source, tmp_path: Path) -> None:
    (tmp_path / "set").write_text("mine")
    with pytest.raises(UsageError, match="nothing is overwritten"):
        write_source(drawn, tmp_path / "set", format="voc")


def test_a_real_set_goes_through_all_formats(shared_data: Path, tmp_path: Path) -> None:
    whole = open_source(shared_data / "fashion8_coco")
    few = {record.key for records in whole.splits.values() for record in records[:5]}
    source = whole.without({record.key for records in whole.splits.values() for record in records} - few)
    for first, second in itertools.pairwise([*WRITERS.names(), WRITERS.names()[0]]):
        write_source(source, tmp_path / f"{first}1", format=first)
        write_source(open_source(tmp_path / f"{first}1"), tmp_path / f"{second}2", format=second)
        read = open_source(tmp_path / f"{second}2")
        assert read.problems == ()
        check_same(source, read, tolerance=1e-3)


def test_a_split_that_is_not_there_gets_advice(drawn: Source) -> None:
    with pytest.raises(DataError, match="has no split 'dev'") as raised:
        drawn.split("dev")
    assert raised.value.advice == "it has: train, val, test"
    single = drawn.without({record.key for record in drawn.records[1:]})
    with pytest.raises(DataError, match="has no split 'val'") as raised:
        single.split("val")
    assert raised.value.advice.startswith("it has a single usable image: add another")
