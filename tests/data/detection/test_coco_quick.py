"""Large COCO files are read in pieces: what comes out is what the usual way gives, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.data.config import BoxOptions
from boxcrew.data.detection import coco_stream
from boxcrew.data.detection import opening as opening_module
from boxcrew.data.detection.coco_stream import UnusualFileError, read_arrays
from boxcrew.data.detection.formats import coco as module
from boxcrew.data.detection.formats.coco import CocoSource
from boxcrew.data.detection.opening import OpenRequest, open_scanned
from boxcrew.data.detection.source import Source
from boxcrew.data.images.reading import encode_image

Content = dict[str, Any]


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 1)


def values(source: Source) -> object:
    splits = {
        name: [
            (record.key, record.path, record.extent, {n: a.tolist() for n, a in vars(record.target).items()})
            for record in records
        ]
        for name, records in source.splits.items()
    }
    return source.root, source.classes, splits, source.problems


def content(num_images: int = 12, *, seed: int = 0, first: int = 0) -> Content:
    """Images of 60 x 40 with objects, of which some have faults, and some images without any."""
    draw = np.random.default_rng(seed)
    images = [
        {"id": 3 * n + first, "file_name": f"{n + first}.jpg", "width": 60, "height": 40}
        for n in range(num_images)
    ]
    annotations = list[Any]()
    for number in range(num_images * 9):
        x, y = draw.uniform(0, 20, 2).round(3).tolist()
        bbox = [x, y, *draw.uniform(4, 20, 2).round(3).tolist()]
        if number in {5, 40, 42}:
            bbox = [[50, 5, 40, 3], [10, 10, 0, 5], [30, 10, -20, 5]][number % 3]
        annotations.append(
            {
                "id": number + 7,
                "image_id": 3 * int(draw.integers(0, num_images - 1)) + first,
                "category_id": int(draw.choice([2, 5, 9])),
                "bbox": bbox,
                "iscrowd": int(number % 11 == 0),
                "segmentation": {"counts": "}, {]}", "size": [3, 4]} if number % 3 else [[1, 2, 3, 4]],
                **({"difficult": 1} if number % 7 == 0 else {}),
            }
        )
    categories = [{"id": number, "name": f"class {number}"} for number in (5, 2, 9)]
    return {
        "info": {"a": [1, {"b": "}]"}]},
        "images": images,
        "annotations": annotations,
        "categories": categories,
    }


def write(folder: Path, **files: Content) -> Path:
    """Write the files, with an image for each that one of them lists, and one more."""
    (folder / "images").mkdir(parents=True)
    image = encode_image(np.zeros((40, 60, 3), dtype=np.uint8))
    for name, each in files.items():
        (folder / f"{name}.json").write_text(json.dumps(each))
        for listed in each["images"]:
            (folder / "images" / str(listed["file_name"]).rpartition("/")[2]).write_bytes(image)
    (folder / "images" / "unlisted.jpg").write_bytes(image)
    return folder


def quickly(path: Path) -> Source | None:
    return CocoSource.open_quickly(path, seed=0, options=BoxOptions())


def require_same(path: Path) -> None:
    quick = quickly(path)
    assert quick is not None
    assert quick.compares_sizes
    assert values(quick) == values(CocoSource.open(path))


def test_it_is_what_the_usual_way_gives(tmp_path: Path) -> None:
    require_same(write(tmp_path / "set", train=content()))
    assert {problem.kind for problem in CocoSource.open(tmp_path / "set").problems} >= {
        "box-overhang",
        "box-empty",
        "empty-annotation",
        "image-without-annotation",
        "class-id-gap",
        "made-split",
    }


def test_also_of_several_splits_and_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "set", train=content(), val=content(5, seed=1, first=100))
    require_same(path)
    require_same(path / "train.json")


@given(size=st.integers(400, 3000), order=st.permutations(["info", "images", "annotations", "categories"]))
def test_pieces_end_between_objects(
    tmp_path_factory: pytest.TempPathFactory, size: int, order: list[str]
) -> None:
    """Wherever a piece is cut, and in whatever order the lists come."""
    whole = content(6)
    path = tmp_path_factory.mktemp("set") / "file.json"
    path.write_text(json.dumps({key: whole[key] for key in order}, indent=size % 3 or None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coco_stream, "_CHUNK", size)
        arrays = read_arrays(path)
    assert arrays.names == [image["file_name"] for image in whole["images"]]
    assert arrays.boxes.tolist() == [item["bbox"] for item in whole["annotations"]]
    assert arrays.ids.tolist() == [item["id"] for item in whole["annotations"]]
    assert arrays.listed == whole["categories"]


def test_a_file_that_is_cut_is_not_read(tmp_path: Path) -> None:
    text = json.dumps(content(6))
    for end in range(1, len(text), 97):
        (tmp_path / "file.json").write_text(text[:end])
        with pytest.raises(UnusualFileError):
            read_arrays(tmp_path / "file.json")


def change(list_name: str, number: int, **values: object) -> Callable[[Content], None]:
    def apply(whole: Content) -> None:
        whole[list_name][number].update(values)

    return apply


UNUSUAL: dict[str, Callable[[Content], object]] = {
    "an id as text": change("images", 1, id="3"),
    "an id twice": change("images", 1, id=0),
    "an object's id twice": change("annotations", 1, id=7),
    "no box": change("annotations", 1, bbox=None),
    "a box of text": change("annotations", 1, bbox=["1", "2", "3", "4"]),
    "no such image": change("annotations", 1, image_id=1),
    "no such category": change("annotations", 1, category_id=1),
    "no size": change("images", 1, width=None),
    "no file": change("images", 1, file_name="../elsewhere/1.jpg"),
    "the same file twice": change("images", 1, file_name="0.jpg"),
    "boxes out of the image": lambda whole: [
        item.update(bbox=[70, 5, 3, 3]) for item in whole["annotations"]
    ],
    "no categories": lambda whole: whole.update(categories=[]),
}


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_the_rest_is_left_to_the_usual_way(unusual: str, tmp_path: Path) -> None:
    whole = content()
    UNUSUAL[unusual](whole)
    path = write(tmp_path / "set", train=whole)
    assert quickly(path) is None


def test_other_readings_are_left_to_the_usual_way(tmp_path: Path) -> None:
    path = write(tmp_path / "set", train=content())
    assert CocoSource.open_quickly(path, seed=0, options=BoxOptions(boxes="xyxy")) is None


def test_images_of_other_sizes_are_found_by_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set is then opened as usual; so it is the next time, from what was stored."""
    monkeypatch.setattr(opening_module, "LEAST_IMAGES", 1)
    monkeypatch.setattr(opening_module, "_TICK", -(10**15))
    path = write(tmp_path / "set", train=content())
    (path / "images" / "3.jpg").write_bytes(encode_image(np.zeros((50, 60, 3), dtype=np.uint8)))
    for _ in range(2):
        source = open_scanned(OpenRequest(path=str(path)), workers=1, cache=tmp_path / "cache")
        record = next(record for record in source.records if record.key == "images/3.jpg")
        assert record.extent == (60, 50)
        assert "size-mismatch" in {problem.kind for problem in source.problems}


def test_a_set_that_was_opened_quickly_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_module, "LEAST_IMAGES", 1)
    monkeypatch.setattr(opening_module, "_TICK", -(10**15))
    path = write(tmp_path / "set", train=content())
    request = OpenRequest(path=str(path))
    first = open_scanned(request, workers=1, cache=tmp_path / "cache")
    monkeypatch.setattr(CocoSource, "open_quickly", lambda *given, **options: None)
    second = open_scanned(request, workers=1, cache=tmp_path / "cache")
    usual = open_scanned(request, workers=1, cache=tmp_path / "another")
    assert values(first) == values(second) == values(usual)
