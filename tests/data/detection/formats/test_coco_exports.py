"""COCO as annotation tools write it: other places, names, categories, and segmentations instead of boxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.coco_shapes import box_of_segmentation
from boxcrew.data.detection.source import SOURCES, Source, open_source
from boxcrew.data.images.reading import write_image
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

BOX = [4.5, 3, 20, 10.25]
CORNERS = [[4.5, 3, 24.5, 13.25]]
TEA = [{"id": 1, "name": "tea"}]
POLYGON = [4.5, 3, 24.5, 3, 24.5, 13.25, 4.5, 13.25]


def draw(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(root / name, np.zeros((30, 40, 3), dtype=np.uint8))


def content(*names: str, categories: list[dict[str, Any]] | None = None, **shape: Any) -> dict[str, Any]:
    """Return a COCO file with an object of category 1 for each image, with `bbox` unless another is given."""
    images = [{"id": i, "file_name": name, "width": 40, "height": 30} for i, name in enumerate(names)]
    shape = shape or {"bbox": BOX, "segmentation": []}
    objects = [{"id": i, "image_id": i, "category_id": 1, **shape} for i in range(len(names))]
    return {"images": images, "annotations": objects, "categories": categories or TEA}


def write(file: Path, value: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=1))
    return file


def assert_boxes(source: Source, wanted: list[list[float]] = CORNERS, num: int = 2) -> None:
    assert len(source.records) == num
    for record in source.records:
        np.testing.assert_array_equal(record.target.boxes, wanted, err_msg=record.key)
        assert [source.classes[label] for label in record.target.labels] == ["tea"] * len(wanted)


def kinds(source: Source) -> set[str]:
    return {str(problem.kind) for problem in source.problems if problem.kind != "made-split"}


def test_roboflow(tmp_path: Path) -> None:
    categories = [
        {"id": 0, "name": "products", "supercategory": "none"},
        {"id": 1, "name": "tea", "supercategory": "products"},
        {"id": 2, "name": "unused", "supercategory": "products"},
    ]
    for split in ("train", "valid", "test"):
        name = f"shelf_{split}_jpg.rf.0a1b2c.jpg"
        draw(tmp_path / split, name)
        value = {"info": {"year": "2024"}, "licenses": [], **content(name, categories=categories)}
        write(tmp_path / split / "_annotations.coco.json", value)
    (tmp_path / "README.roboflow.txt").write_text("products - v1\n")
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 1, "val": 1, "test": 1}
    assert source.classes == ("tea", "unused")
    assert_boxes(source, num=3)
    (problem,) = source.problems
    assert (problem.kind, problem.action, problem.value) == ("class-empty", "noted", "products")


def test_a_category_that_one_split_uses_is_a_class_in_all(tmp_path: Path) -> None:
    categories = [{"id": 0, "name": "tea"}, {"id": 1, "name": "green tea", "supercategory": "tea"}]
    for split, used in (("train", 1), ("val", 0)):
        draw(tmp_path / split, f"{split}.jpg")
        value = content(f"{split}.jpg", categories=categories)
        value["annotations"][0]["category_id"] = used
        write(tmp_path / f"{split}.json", value)
    source = open_source(tmp_path)
    assert source.classes == ("tea", "green tea")
    assert [source.split(split)[0].target.labels.tolist() for split in ("train", "val")] == [[1], [0]]
    assert kinds(source) == set()


@pytest.mark.parametrize(
    ("categories", "classes"),
    [
        ([{"id": 1, "name": "tea"}, {"id": 2, "name": "cup", "supercategory": "cup"}], ("tea", "cup")),
        ([{"id": 0, "name": "tea"}, {"id": 1, "name": "tea", "supercategory": "tea"}], ("tea",)),
        ([{"id": 1, "name": "tea", "supercategory": "none"}, {"id": 2, "name": "none"}], ("tea",)),
    ],
)
def test_which_categories_only_group_others(
    categories: list[dict[str, Any]], classes: tuple[str, ...], tmp_path: Path
) -> None:
    draw(tmp_path, "a.jpg")
    source = open_source(write(tmp_path / "all.json", content("a.jpg", categories=categories)))
    assert source.classes == classes
    assert kinds(source) == (set() if len(classes) == 2 else {"class-empty"})


@pytest.mark.parametrize("folder", ["images", "images/default"])
def test_cvat(folder: str, tmp_path: Path) -> None:
    draw(tmp_path / folder, "frame_000000.png", "frame_000001.png")
    value = content(
        "frame_000000.png",
        "frame_000001.png",
        bbox=BOX,
        segmentation=[POLYGON],
        attributes={"occluded": False},
    )
    order = ["licenses", "info", "categories", "images", "annotations"]
    write(
        tmp_path / "annotations" / "instances_default.json",
        {key: value.get(key, []) for key in order},
    )
    source = open_source(tmp_path)
    assert_boxes(source)
    assert kinds(source) == set()


@pytest.mark.parametrize(
    "prefix",
    ["images\\", "images/", "../../label-studio/data/media/upload/1/", "/label-studio/data/upload/1/",
     "http://localhost:8080/data/upload/1/", "/data/local-files/?d=photos/"],
)  # fmt: skip
def test_label_studio(prefix: str, tmp_path: Path) -> None:
    names = ["1f0c2d3e-a.jpg", "9a8b7c6d-b.jpg"]
    draw(tmp_path / "images", *names)
    value = content(*(prefix + name for name in names), ignore=0, iscrowd=0, bbox=BOX, segmentation=[])
    write(tmp_path / "result.json", {**value, "info": {"contributor": "Label Studio"}})
    for path in (tmp_path, tmp_path / "result.json"):
        source = open_source(path)
        assert source.format == "coco"
        assert set(records_by_key(source)) == {f"images/{name}" for name in names}
        assert_boxes(source)
        assert kinds(source) == set()


@pytest.mark.parametrize("name", ["labels.json", "coco_annotations.json", "My Export.JSON"])
def test_a_lone_file_of_any_name(name: str, tmp_path: Path) -> None:
    draw(tmp_path / "data", "a.jpg", "b.jpg")
    write(tmp_path / name, content("a.jpg", "b.jpg"))
    write(tmp_path / "package.json", {"images": [], "version": 1})
    assert_boxes(open_source(tmp_path))


def test_several_files_without_splits_must_be_chosen_from(tmp_path: Path) -> None:
    draw(tmp_path / "images", "a.jpg", "b.jpg")
    for name in ("first.json", "second.json"):
        write(tmp_path / name, content("a.jpg", "b.jpg"))
    with pytest.raises(DataError, match=r"first\.json, second\.json") as caught:
        open_source(tmp_path)
    assert "one of them" in caught.value.advice
    assert_boxes(open_source(tmp_path / "second.json"))


FOREIGN = {
    "LabelMe": {"version": "5.4", "flags": {}, "shapes": [{"label": "tea", "points": [[1, 2], [3, 4]]}]},
    "Create ML": [{"image": "a.jpg", "annotations": [{"label": "tea", "coordinates": {"x": 1}}]}],
    "Supervisely": {"description": "", "tags": [], "size": {"height": 30, "width": 40}, "objects": []},
    "Supervisely meta": {"classes": [{"title": "tea", "shape": "rectangle"}], "tags": []},
    "Label Studio": [{"id": 1, "annotations": [{"result": []}], "data": {"image": "a.jpg"}, "file_name": ""}],
    "Label Studio YOLO": {"categories": [{"id": 0, "name": "tea"}], "info": {"year": 2024}},
    "Datumaro": {"categories": {"label": {"labels": []}}, "items": [{"id": "a", "annotations": []}]},
    "COCO results": [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}],
}


@pytest.mark.parametrize("tool", FOREIGN)
def test_files_of_other_tools_are_not_taken_for_coco(tool: str, tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg")
    file = write(tmp_path / "a.json", FOREIGN[tool])
    assert not SOURCES.get("coco").detect(tmp_path)
    assert not SOURCES.get("coco").detect(file)


def test_a_folder_with_a_file_for_each_image_is_not_searched(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    for i in range(20):
        write(tmp_path / f"{i}.json", FOREIGN["LabelMe"])
    assert not SOURCES.get("coco").detect(tmp_path)
    write(tmp_path / "train.json", content("a.jpg", "b.jpg"))
    assert_boxes(open_source(tmp_path, format="coco"))


@pytest.mark.parametrize(
    ("segmentation", "box"),
    [
        ([POLYGON], CORNERS[0]),
        (POLYGON, CORNERS[0]),
        ([[1, 2, 5, 2, 5, 4], [10, 8, 12, 8, 12, 20]], [1, 2, 12, 20]),
        ({"size": [30, 40], "counts": [153, 7, 23, 7, 1010]}, [5, 3, 7, 10]),
        ({"size": [30, 40], "counts": [0, 1200]}, [0, 0, 40, 30]),
        ({"size": [30, 40], "counts": [170, 20, 1010]}, [5, 0, 7, 30]),  # one run over two columns
        ({"size": [30, 40], "counts": "i47g0000000000000000000000000000eb0"}, [5, 3, 20, 10]),
    ],
)
def test_boxes_follow_from_segmentations(segmentation: object, box: list[float], tmp_path: Path) -> None:
    draw(tmp_path / "images", "a.jpg", "b.jpg")
    write(tmp_path / "train.json", content("a.jpg", "b.jpg", segmentation=segmentation))
    source = open_source(tmp_path)
    assert_boxes(source, [box])
    (problem,) = (problem for problem in source.problems if problem.kind == "box-derived")
    assert (problem.action, problem.count) == ("noted", 2)
    assert problem.message == "the boxes of 2 objects are derived from segmentations"


@pytest.mark.parametrize(
    "segmentation",
    [
        None, [], {}, [[]], [[1, 2]], [[1, 2, 3]], [["a", "b", "c", "d"]], "polygon", 5, [[1, 2, 3, 4], None],
        {"size": [30, 40]}, {"size": [30], "counts": [1200]}, {"size": [30, 40], "counts": [10, 10]},
        {"size": [30, 40], "counts": [-1, 1201]}, {"size": [-30, -40], "counts": [1200]},
        {"size": [30, 40], "counts": ["a"]}, {"size": "no", "counts": "no"}, {"size": [30, 40], "counts": 5},
        {"size": [10**30, 40], "counts": "i47g0"},
    ],
)  # fmt: skip
def test_what_is_no_segmentation_is_left_out(segmentation: object, tmp_path: Path) -> None:
    assert box_of_segmentation(segmentation) is None
    draw(tmp_path / "images", "a.jpg", "b.jpg")
    source = open_source(write(tmp_path / "all.json", content("a.jpg", "b.jpg", segmentation=segmentation)))
    left_out = [problem for problem in source.problems if problem.kind == "box-malformed"]
    assert [problem.at for problem in left_out] == ["annotation 0", "annotation 1"]


def test_a_box_that_is_written_wins_over_the_segmentation(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    value = content("a.jpg", "b.jpg", bbox=BOX, segmentation=[[0, 0, 40, 0, 40, 30]])
    source = open_source(write(tmp_path / "all.json", value))
    assert_boxes(source)
    assert kinds(source) == set()


def test_ids_as_text_or_with_a_fraction(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    value = content("a.jpg", "b.jpg", categories=[{"id": "1", "name": "tea"}])
    value["images"][0]["id"] = "0"
    value["annotations"][0]["category_id"] = 1.0
    value["annotations"][1] |= {"image_id": 1.0, "category_id": "1"}
    source = open_source(write(tmp_path / "all.json", value))
    assert_boxes(source)
    assert kinds(source) == set()


def test_a_huge_category_id_takes_no_time(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    categories = [*TEA, {"id": 10**15, "name": "far"}]
    source = open_source(write(tmp_path / "all.json", content("a.jpg", "b.jpg", categories=categories)))
    assert source.classes == ("tea", "far")
    assert "missing category ids: 2, 3, 4, 5, 6, 7, 8, 9, …" in problem_lines(source)
