"""Supervisely projects: rectangles, polygons and masks, and the faults found in them."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import open_source
from boxcrew.testing.sources import check_invariants, check_opens_the_same
from tests.helpers.damage import write_png_bomb
from tests.helpers.labels import draw, kinds_of, objects_of, write
from tests.helpers.sources import problem_lines, split_sizes

META = {"classes": [{"title": "tea", "shape": "any"}, {"title": "jam", "shape": "rectangle"}], "tags": []}


def encoded(png: bytes) -> str:
    return base64.b64encode(zlib.compress(png)).decode()


def mask(*, mode: str) -> str:
    """A mask of 8 x 6 pixels, of which columns 2..4 and rows 1..3 are set."""
    values = np.zeros((6, 8), dtype=np.uint8)
    values[1:4, 2:5] = 255
    image = Pillow.fromarray(values)
    if mode == "RGBA":
        image = Pillow.merge("RGBA", (Pillow.new("L", image.size, 255),) * 3 + (image,))
    file = io.BytesIO()
    image.convert(mode).save(file, "PNG")
    return encoded(file.getvalue())


def shape(kind: str, points: object, title: str = "tea") -> dict[str, Any]:
    return {"classTitle": title, "geometryType": kind, "points": {"exterior": points, "interior": []}}


def bitmap(data: object, origin: object = (10, 5)) -> dict[str, Any]:
    origin = list(origin) if isinstance(origin, tuple) else origin
    return {"classTitle": "tea", "geometryType": "bitmap", "bitmap": {"data": data, "origin": origin}}


def annotate(dataset: Path, name: str, *objects: object, **content: object) -> None:
    value = {"size": {"width": 40, "height": 30}, "tags": [], "objects": objects, **content}
    write(dataset / "ann" / f"{name}.json", json.dumps(value))


def project(root: Path, *datasets: str) -> Path:
    write(root / "meta.json", json.dumps(META))
    for dataset in datasets:
        draw(root / dataset / "img", "a.jpg", "b.jpg")
        annotate(root / dataset, "a.jpg", shape("rectangle", [[1, 2], [20, 25]], "jam"))
        annotate(root / dataset, "b.jpg", shape("polygon", [[3, 4], [30, 6.5], [12, 28]]))
    return root


def test_rectangles_and_polygons(tmp_path: Path) -> None:
    source = open_source(project(tmp_path, "ds0"))
    assert source.format == "supervisely"
    assert source.classes == ("tea", "jam")
    assert objects_of(source) == {
        "ds0/img/a.jpg": [("jam", (1, 2, 20, 25))],
        "ds0/img/b.jpg": [("tea", (3, 4, 30, 28))],
    }
    assert kinds_of(source) == set()
    check_invariants(source)
    check_opens_the_same(tmp_path, seed=1)


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGB", "RGBA"])
def test_masks_become_the_boxes_of_what_is_set(mode: str, tmp_path: Path) -> None:
    annotate(project(tmp_path, "ds0") / "ds0", "a.jpg", bitmap(mask(mode=mode)))
    assert objects_of(open_source(tmp_path))["ds0/img/a.jpg"] == [("tea", (12, 6, 15, 9))]


def test_datasets_named_after_splits_are_the_splits(tmp_path: Path) -> None:
    source = open_source(project(tmp_path, "train", "val", "test"))
    assert split_sizes(source) == {"train": 2, "val": 2, "test": 2}


def test_one_dataset_of_a_project_can_be_opened(tmp_path: Path) -> None:
    source = open_source(project(tmp_path, "train", "val") / "val")
    assert source.classes == ("tea", "jam")
    assert set(objects_of(source)) == {"img/a.jpg", "img/b.jpg"}


def test_older_exports_name_annotations_without_the_suffix_of_the_image(tmp_path: Path) -> None:
    project(tmp_path, "ds0")
    for name in "ab":
        (tmp_path / "ds0" / "ann" / f"{name}.jpg.json").rename(tmp_path / "ds0" / "ann" / f"{name}.json")
    assert set(objects_of(open_source(tmp_path))) == {"ds0/img/a.jpg", "ds0/img/b.jpg"}


def test_shapes_and_values_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    png = tmp_path / "bomb.png"
    write_png_bomb(png)
    bomb = encoded(png.read_bytes())
    png.unlink()
    faulty = [
        shape("line", [[1, 2], [3, 4]]),
        shape("point", [[1, 2]]),
        shape("rectangle", [[1, 2]]),
        shape("polygon", [[1, 2], [3, "x"], [5, 6]]),
        shape("polygon", "none"),
        shape("rectangle", [[1, 2], [20, 25]], "coffee"),
        bitmap("not base 64"),
        bitmap(mask(mode="L")[:20]),
        bitmap(mask(mode="L"), origin=None),
        bitmap(bomb),
        bitmap(None),
        "object",
        {"classTitle": "tea", "geometryType": "rectangle"},
        shape("rectangle", [[1, float("nan")], [3, 4]]),
    ]
    annotate(project(tmp_path, "ds0") / "ds0", "a.jpg", *faulty, shape("rectangle", [[1, 2], [20, 25]]))
    source = open_source(tmp_path)
    assert objects_of(source)["ds0/img/a.jpg"] == [("tea", (1, 2, 20, 25))]
    lines = problem_lines(source)
    assert all(f"object {number} (" in lines for number in range(1, len(faulty) + 1))
    assert "object 1 (tea): is a line, which has no box" in lines
    assert "class 'coffee' is not among the classes" in lines
    assert "object 10 (tea): its bitmap cannot be decoded: Image size (400000000 pixels)" in lines


@pytest.mark.parametrize("content", ["", '{"objects": [', "[]", '{"objects": 3}', '{"objects": {"a": 1}}'])
def test_an_annotation_that_cannot_be_parsed_is_left_out(content: str, tmp_path: Path) -> None:
    write(project(tmp_path, "ds0") / "ds0" / "ann" / "a.jpg.json", content)
    source = open_source(tmp_path)
    assert set(objects_of(source)) == {"ds0/img/b.jpg"}
    assert "ds0/ann/a.jpg.json: " in problem_lines(source)


def test_a_missing_image_is_reported(tmp_path: Path) -> None:
    (project(tmp_path, "ds0") / "ds0" / "img" / "a.jpg").unlink()
    assert "there is no image file a.jpg" in problem_lines(open_source(tmp_path))


@pytest.mark.parametrize("content", ["", "[]", '{"classes": 1}', '{"classes": [{"shape": "any"}]}', "\x00"])
def test_classes_that_cannot_be_read_are_an_error(content: str, tmp_path: Path) -> None:
    write(project(tmp_path, "ds0") / "meta.json", content)
    with pytest.raises(DataError, match=r"meta\.json"):
        open_source(tmp_path)
