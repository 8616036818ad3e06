"""COCO JSON: one file or one for each split, and the faults found in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.reading import write_image
from boxcrew.testing.sources import check_invariants
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

CATEGORIES = [{"id": 7, "name": "jam"}, {"id": 3, "name": " tea "}, {"id": 90, "name": "unused"}]
GAPS = "4, 5, 6, 8, 9, 10, 11, 12, …"


def content(names: list[str], categories: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    images = [{"id": i, "file_name": name, "width": 40, "height": 30} for i, name in enumerate(names)]
    boxes = [{"id": i, "image_id": i, "category_id": 7, "bbox": [1, 2, 10, 10]} for i in range(len(names))]
    return {"images": images, "annotations": boxes, "categories": categories or CATEGORIES}


def write(file: Path, value: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))
    return file


def draw(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(folder / name, np.zeros((30, 40, 3), dtype=np.uint8))


def test_boxes_classes_and_flags(tmp_path: Path) -> None:
    value = content(["a.jpg", "b.jpg"])
    value["annotations"] = [
        {"id": 1, "image_id": 0, "category_id": 7, "bbox": [1.5, 2, 10, 10.25], "iscrowd": 0},
        {"id": 2, "image_id": 0, "category_id": 3, "bbox": [0, 0, 40, 30], "iscrowd": 1},
    ]
    draw(tmp_path / "images", "a.jpg", "b.jpg")
    write(tmp_path / "annotations" / "instances_train.json", value)
    source = open_source(tmp_path)
    assert source.format == "coco"
    assert source.classes == ("tea", "jam", "unused")
    records = records_by_key(source)
    target = records["images/a.jpg"].target
    np.testing.assert_array_equal(target.boxes, [[1.5, 2, 11.5, 12.25], [0, 0, 40, 30]])
    assert target.labels.tolist() == [1, 0]
    assert target.crowd.tolist() == [False, True]
    assert len(records["images/b.jpg"].target) == 0


@pytest.mark.parametrize(
    "folders",
    [
        {"train": "images", "val": "images"},
        {"train": "images/train", "val": "images/val"},
        {"train": "train", "val": "val"},
        {"train": "train2017", "val": "val2017"},
        {"train": "images/train2017", "val": "images/validation"},
        {"train": "", "val": ""},
        {"train": "annotations", "val": "annotations"},
    ],
)
def test_image_folders(folders: dict[str, str], tmp_path: Path) -> None:
    draw(tmp_path / folders["train"], "a.jpg", "b.jpg")
    draw(tmp_path / folders["val"], "c.jpg")
    write(tmp_path / "annotations" / "instances_train2017.json", content(["a.jpg", "b.jpg"]))
    write(tmp_path / "annotations" / "instances_val2017.json", content(["c.jpg"]))
    write(tmp_path / "annotations" / "captions_val2017.json", content(["c.jpg"]))
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 2, "val": 1}
    (gap,) = source.problems
    assert (gap.kind, gap.file, gap.value) == ("class-id-gap", "annotations/instances_train2017.json", GAPS)


def test_same_names_in_the_folders_of_splits(tmp_path: Path) -> None:
    for folder in ("train", "valid", "test"):
        draw(tmp_path / folder, "a.jpg")
        write(tmp_path / folder / "_annotations.coco.json", content(["a.jpg"]))
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 1, "val": 1, "test": 1}
    assert [records[0].key for records in source.splits.values()] == [
        "train/a.jpg",
        "valid/a.jpg",
        "test/a.jpg",
    ]


def test_one_file_is_split_by_the_seed(tmp_path: Path) -> None:
    names = [f"{i}.jpg" for i in range(10)]
    draw(tmp_path / "images", *names)
    file = write(tmp_path / "annotations" / "instances_default.json", content(names))
    for path in (file, tmp_path):
        source = open_source(path)
        assert split_sizes(source) == {"train": 8, "val": 2}
        assert source.split("train")[0].key.startswith("images/")
        assert "has no validation split" in problem_lines(source)
    alone = write(tmp_path / "mine.json", content([f"images/{name}" for name in names]))
    assert split_sizes(open_source(alone)) == {"train": 8, "val": 2}


def test_everything_wrong_is_named_and_the_rest_used(tmp_path: Path) -> None:
    value = content(["good.jpg", "fine.jpg", "gone.jpg", "../secret.jpg", "/etc/passwd", "inner/../fine.jpg"])
    value["images"] += [{"id": 0, "file_name": "twice.jpg"}, {"id": 50}, {"id": 51, "file_name": 5}]
    value["annotations"] = [
        {"id": "a", "image_id": 0, "category_id": 8, "bbox": [1, 2, 3, 4]},
        {"id": "b", "image_id": 99, "category_id": 7, "bbox": [1, 2, 3, 4]},
        {"id": "c", "image_id": 0, "category_id": 7, "bbox": [1, 2, 3]},
        {"id": "d", "image_id": 0, "category_id": 7},
        {"id": "e", "image_id": 0, "category_id": 7, "bbox": [1, 2, "x", 4]},
        {"id": "f", "image_id": 0, "category_id": 7, "bbox": [1, 2, 10**400, 4]},
        {"id": "g", "image_id": 0, "category_id": 7, "bbox": [9, 9, -3, -4]},
        {"id": "h", "image_id": 0, "category_id": 7, "bbox": [1, 2, float("nan"), 4]},
        {"id": "i", "image_id": 0, "category_id": 7, "bbox": [30, 2, 20, 4]},
        {"image_id": 0, "category_id": None, "bbox": None},
    ]
    draw(tmp_path, "secret.jpg")
    draw(tmp_path / "set", "good.jpg", "fine.jpg")
    source = open_source(write(tmp_path / "set" / "all.json", value))
    check_invariants(source)
    records = records_by_key(source)
    assert set(records) == {"good.jpg", "fine.jpg"}
    np.testing.assert_array_equal(records["good.jpg"].target.boxes, [[6, 5, 9, 9], [30, 2, 40, 6]])
    messages = problem_lines(source)
    for expected in (
        "all.json annotation a: there is no category 8 (left out)",
        "annotation b: there is no image 99",
        "annotation c: bbox is not four numbers: [1, 2, 3]",
        "annotation d: bbox is not four numbers: None",
        "annotation e: bbox is not four numbers",
        "annotation f: bbox is not four numbers",
        "annotation g: box [9, 9, 6, 5] has its corners swapped (repaired)",
        "annotation h: box [1, 2, nan, 6] has a side that is not a number (left out)",
        "annotation i: box [30, 2, 50, 6] extends beyond the image of 40 x 30 (repaired)",
        "annotation number 9: there is no category None",
        "image 2: there is no image file gone.jpg",
        "image 3: there is no image file ../secret.jpg",
        "image 4: there is no image file /etc/passwd",
        "image fine.jpg is listed again",
        "image id 0 is used again",
        "an image has no id or file_name: {'id': 50}",
    ):
        assert expected in messages, expected


def test_ids_given_twice_and_images_in_no_file(tmp_path: Path) -> None:
    value = content(["a.jpg", "b.jpg"], [{"id": 7, "name": "jam"}, {"id": 7, "name": "tea"}])
    value["annotations"].append(value["annotations"][0])
    draw(tmp_path / "images", "a.jpg", "b.jpg", "later.jpg")
    file = write(tmp_path / "annotations" / "instances_train.json", value)
    source = open_source(tmp_path)
    assert source.classes == ("jam",)
    problems = {(p.kind, p.file, p.at, p.value, p.action) for p in source.problems}
    file_name = "annotations/instances_train.json"
    assert problems >= {
        ("duplicate-id", file_name, "category number 1", "7", "left out"),
        ("duplicate-id", file_name, "annotation 0", "0", "noted"),
        ("image-without-annotation", "images/later.jpg", "", "", "left out"),
    }
    assert "image-without-annotation" not in {p.kind for p in open_source(file).problems}


def test_a_set_in_the_current_folder_stays_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(tmp_path, "secret.jpg")
    draw(tmp_path / "set", "good.jpg")
    write(tmp_path / "set" / "train.json", content(["good.jpg", "../secret.jpg"]))
    monkeypatch.chdir(tmp_path / "set")
    source = open_source(".")
    assert [record.key for record in source.split("train")] == ["good.jpg"]
    assert "there is no image file ../secret.jpg" in problem_lines(source)


def test_files_must_share_the_categories(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg")
    write(tmp_path / "train.json", content(["a.jpg"]))
    write(tmp_path / "val.json", content(["a.jpg"], [{"id": 7, "name": "honey"}]))
    with pytest.raises(DataError, match=r"val\.json: .*train\.json"):
        open_source(tmp_path)


def test_categories_of_one_name_are_one_class(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg")
    categories = [{"id": 0, "name": "jam"}, {"id": 7, "name": "jam"}, {"id": 8, "name": "tea"}]
    source = open_source(write(tmp_path / "all.json", content(["a.jpg"], categories)))
    assert source.classes == ("jam", "tea")
    assert source.split("train")[0].target.labels.tolist() == [0]
    assert "same name" in problem_lines(source)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"images": 5}', '{"images": [], "annotations": [3]}', '{"images": [], "categories": []}',
     '{"images": [], "categories": [{"id": 1}]}', "[" * 100_000],
)  # fmt: skip
def test_what_is_not_coco_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json"):
        open_source(tmp_path / "a.json")


def test_other_json_files_are_no_data_set(tmp_path: Path) -> None:
    write(tmp_path / "train.json", {"learning_rate": 1})
    write(tmp_path / "package.json", {"images": []})
    with pytest.raises(DataError, match="not a data set in any known format"):
        open_source(tmp_path)


def test_fashion(shared_data: Path) -> None:
    source = open_source(shared_data / "fashion8_coco")
    assert source.format == "coco"
    assert source.classes == ("clothes", "dress", "pants", "skirt", "shoes", "bag", "glasses", "hat")
    assert split_sizes(source) == {"train": 702, "val": 150, "test": 151}
    assert sum(len(record.target) for record in records_by_key(source).values()) == 5373
    assert source.problems == ()
    check_invariants(source)
