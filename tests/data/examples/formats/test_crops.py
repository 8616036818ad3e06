from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from boxcrew.core.types import Target
from boxcrew.data.config import BoxOptions
from boxcrew.data.detection.formats.voc import VocSource
from boxcrew.data.detection.records import Record
from boxcrew.data.examples.example_set import ExampleOptions, open_examples
from boxcrew.data.examples.formats import crops
from boxcrew.data.examples.formats.crops import SMALLEST_SIDE, open_crops
from boxcrew.data.images.reading import read_image, write_image
from tests.helpers.made_examples import draw_blocks, make_crops
from tests.helpers.misread import draw_images, write_set

BOXES = [[10, 20, 30, 60], [0, 0, 50, 50], [60, 60, 67, 80], [20, 20, 60, 60], [5, 5, 40, 40]]


def drawn_source(folder: Path) -> VocSource:
    """One photo of 100 x 80 in each split, with an object of each sort: two good ones, one too small, one
    difficult, one a crowd.
    """
    splits = {}
    for number, split in enumerate(("train", "val")):
        file = folder / f"{split}.png"
        write_image(file, draw_blocks(number, width=100, height=80))
        target = Target.of(
            BOXES, [0, 1, 0, 1, 0], difficult=[0, 0, 0, 1, 0], crowd=[False, False, False, False, True]
        )
        splits[split] = (Record(key=file.name, path=file, width=100, height=80, target=target),)
    return VocSource(root=folder, classes=("a", "b", "c"), splits=splits)


def test_objects_are_cut_out_with_a_margin(tmp_path: Path) -> None:
    source = drawn_source(tmp_path)
    opened = open_crops(source, ExampleOptions(), format="crops")
    assert opened.classes == ("a", "b")
    assert opened.shape == (32, 32, 3)
    part = opened.split("train")
    assert [part.key(index) for index in range(len(part))] == ["train.png#0", "train.png#1"]
    assert part.labels.tolist() == [0, 1]
    image = read_image(tmp_path / "train.png")
    fetched = part.fetch([0, 1]).inputs
    for crop, (x0, y0, x1, y1) in zip(fetched, [(8, 16, 32, 64), (0, 0, 55, 55)], strict=True):
        small = x1 - x0 < 32 or y1 - y0 < 32
        way = cv2.INTER_LINEAR if small else cv2.INTER_AREA
        assert np.array_equal(crop, cv2.resize(image[y0:y1, x0:x1], (32, 32), interpolation=way))
    assert {problem.kind for problem in opened.problems} == {"box-small", "class-empty"}
    (small_ones,) = [problem for problem in opened.problems if problem.kind == "box-small"]
    assert small_ones.message.startswith("2 objects")


def test_boxes_are_read_as_the_options_say(tmp_path: Path) -> None:
    images = draw_images(sizes=[(100, 80), (90, 110)])
    folder = write_set(tmp_path / "set", images, format="voc", order="xywh")
    opened = open_examples(folder, ExampleOptions(boxes=BoxOptions(boxes="xywh")), format="crops")
    assert sum(len(split) for split in opened.splits.values()) == sum(
        min(x1 - x0, y1 - y0) >= SMALLEST_SIDE for image in images for x0, y0, x1, y1 in image.boxes
    )


def test_what_is_read_when_asked_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_crops(tmp_path)
    at_once = open_examples(path, ExampleOptions(size=16))
    monkeypatch.setattr(crops, "_MOST_IN_MEMORY", 0)
    later = open_examples(path, ExampleOptions(size=16))
    assert later.split("train").input_bytes > 0
    assert at_once.split("train").input_bytes == 0
    for split, part in at_once.splits.items():
        everyone = range(len(part))
        other = later.split(split).with_cache(20 * 16 * 16 * 3)
        assert [part.key(index) for index in everyone] == [other.key(index) for index in everyone]
        for _ in range(2):  # read, and then kept
            assert np.array_equal(part.fetch(everyone).inputs, other.fetch(everyone).inputs)


def test_a_photo_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    path = make_crops(tmp_path)
    whole = open_examples(path, ExampleOptions())
    part = whole.split("train")
    name = part.key(0).split("#")[0]
    photo = path / name
    photo.write_bytes(photo.read_bytes()[:1000])
    opened = open_examples(path, ExampleOptions())
    left = opened.split("train")
    assert {left.key(index) for index in range(len(left))} == {
        key for index in range(len(part)) if not (key := part.key(index)).startswith(f"{name}#")
    }
    assert [problem.file for problem in opened.problems if problem.kind == "truncated-image"] == [name]


def test_a_photo_that_vanishes_between_is_told(tmp_path: Path) -> None:
    source = drawn_source(tmp_path)
    (tmp_path / "val.png").unlink()
    opened = open_crops(source, ExampleOptions(), format="crops")
    (problem,) = [problem for problem in opened.problems if problem.kind == "unreadable-image"]
    assert "val.png" in problem.message


def test_only_sets_for_detection_are_taken(tmp_path: Path) -> None:
    assert not crops.CropsFormat.detect(tmp_path)
    write_image(tmp_path / "a.png", draw_blocks(1))
    assert not crops.CropsFormat.detect(tmp_path)


def test_real_crops(shared_data: Path) -> None:
    opened = open_examples(shared_data / "coco128_yolo", ExampleOptions(workers=2))
    assert opened.format == "crops"
    assert "person" in opened.classes
    assert len(opened.split("train")) > 500
    train = opened.split("train")
    assert train.fetch(range(len(train))).inputs.std() > 30
