"""Create ML: a list of images with boxes given by their centers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import SOURCES, open_source
from boxcrew.testing.sources import check_invariants, check_opens_the_same
from tests.helpers.labels import draw, kinds_of, objects_of, write
from tests.helpers.sources import problem_lines, split_sizes


def item(x: object, y: object, width: object, height: object, label: object = "tea") -> dict[str, object]:
    return {"label": label, "coordinates": {"x": x, "y": y, "width": width, "height": height}}


CONTENT = [
    {"image": "a.jpg", "annotations": [item(10, 12.5, 19, 20), item(30, 20, 10, 10, "jam")]},
    {"image": "b.jpg", "annotations": []},
]


@pytest.mark.parametrize("name", ["_annotations.createml.json", "annotations.json"])
@pytest.mark.parametrize("from_file", [False, True])
def test_boxes_are_given_by_their_centers(name: str, from_file: bool, tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    file = write(tmp_path / name, json.dumps(CONTENT))
    source = open_source(file if from_file else tmp_path)
    assert source.format == "create_ml"
    assert source.classes == ("jam", "tea")
    assert objects_of(source) == {
        "a.jpg": [("tea", (0.5, 2.5, 19.5, 22.5)), ("jam", (25, 15, 35, 25))],
        "b.jpg": [],
    }
    assert kinds_of(source) == set()
    check_invariants(source)
    check_opens_the_same(tmp_path, seed=1)


def test_the_older_names_of_the_fields(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg")
    content = [{"imagefilename": "a.jpg", "annotation": [item(10, 10, 4, 4)]}]
    source = open_source(write(tmp_path / "a.json", json.dumps(content)))
    assert objects_of(source) == {"a.jpg": [("tea", (8, 8, 12, 12))]}


def test_roboflow_has_a_file_in_each_split_folder(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        draw(tmp_path / split, "a.jpg", "b.jpg")
        write(tmp_path / split / "_annotations.createml.json", json.dumps(CONTENT))
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 2, "val": 2, "test": 2}
    assert kinds_of(source) == set()


def test_faulty_entries_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    faulty = [
        item("x", 1, 2, 2), item(1, 1, 2, None), item(float("nan"), 1, 2, 2), item(1, 1, 2, 2, ""),
        "object", {"label": "tea", "coordinates": [1, 2, 3, 4]}, item(1, 1, True, 2), item(100, 100, 4, 4),
    ]  # fmt: skip
    content = [
        {"image": "b.jpg", "annotations": [*faulty, item(10, 10, 4, 4)]},
        {"annotations": []},
        {"image": ["c.jpg"], "annotations": []},
        {"image": "c.jpg", "annotations": 7},
        None,
        {"image": "absent.jpg", "annotations": []},
    ]
    write(tmp_path / "labels.json", json.dumps([*CONTENT[:1], *content]))
    source = open_source(tmp_path)
    assert set(objects_of(source)) == {"a.jpg", "b.jpg"}
    assert objects_of(source)["b.jpg"] == [("tea", (8, 8, 12, 12))]
    lines = problem_lines(source)
    assert all(f"image number 1, object {number}: " in lines for number in range(1, len(faulty) + 1))
    assert all(f"image number {number}: is not an image" in lines for number in (2, 3, 4, 5))
    assert "image number 6: there is no image file absent.jpg" in lines
    assert "c.jpg: is in no annotation file" in lines


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_a_file_that_is_cut_is_an_error(share: float, tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    text = json.dumps(CONTENT)
    file = write(tmp_path / "_annotations.createml.json", text[: int(len(text) * share)])
    with pytest.raises(DataError, match=r"createml\.json: cannot be parsed as JSON") as caught:
        open_source(file)
    assert caught.value.advice


def test_lists_of_other_tools_are_not_detected(tmp_path: Path) -> None:
    tasks = [{"data": {"image": "a.jpg"}, "annotations": [{"result": []}]}]
    file = write(tmp_path / "tasks.json", json.dumps(tasks))
    assert not SOURCES.get("create_ml").detect(file)
    assert not SOURCES.get("create_ml").detect(tmp_path)
