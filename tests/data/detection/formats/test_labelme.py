"""LabelMe's files, as its versions write them, and damaged ones."""

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


def shape(label: object, points: object, kind: str | None = "rectangle", **fields: Any) -> dict[str, Any]:
    flags: dict[str, Any] = {"group_id": None, "description": "", "flags": {}}
    return {"label": label, "points": points, **flags, "shape_type": kind, **fields}


def content(*shapes: object, image: object = "a.png", **fields: Any) -> dict[str, Any]:
    sides = {"imageHeight": 30, "imageWidth": 40}
    return {
        "version": "5.4.1",
        "flags": {},
        "shapes": list(shapes),
        "imagePath": image,
        "imageData": None,
    } | (sides | fields)


def put(json_file: Path, text: object = None, *, image: str = "") -> None:
    """Write an image of 40 x 30 and its LabelMe file."""
    json_file.parent.mkdir(parents=True, exist_ok=True)
    name = image or f"{json_file.stem}.png"
    (json_file.parent / name).parent.mkdir(parents=True, exist_ok=True)
    write_image(json_file.parent / name, np.zeros((30, 40, 3), dtype=np.uint8))
    if text is None:
        text = content(shape("tea", [[1, 2], [11, 12]]), image=name)
    json_file.write_text(text if isinstance(text, str) else json.dumps(text, indent=2))


def opened(root: Path, *shapes: object, **fields: Any) -> tuple[list[list[float]], list[str], str]:
    """The boxes and class names of an image with these shapes, and the problems."""
    put(root / "a.json", content(*shapes, **fields))
    put(root / "z.json", content(shape("last", [[0, 0], [9, 9]]), image="z.png"))
    source = open_source(root)
    assert source.format == "labelme"
    check_invariants(source)
    target = records_by_key(source)["a.png"].target
    return target.boxes.tolist(), [source.classes[label] for label in target.labels], problem_lines(source)


def test_shapes_become_boxes(tmp_path: Path) -> None:
    boxes, names, problems = opened(
        tmp_path,
        shape("tea", [[1.5, 2], [11, 12.25]]),
        shape("jam", [[11, 12], [1, 2]]),  # from the bottom right
        shape("jam", [[11, 2], [1, 12]]),  # from the top right
        shape("jam", [[1, 2], [11, 2], [11, 12], [1, 12]]),  # four corners, as AnyLabeling writes them
        shape("tea", [[5, 5], [15, 3], [20, 25]], "polygon"),
        shape("tea", [[5, 5], [15, 3], [20, 25]], None),  # versions before 4 have no other shape
        shape("egg", [[20, 15], [23, 19]], "circle"),  # radius 5
        shape("egg", [[3, 4], [9, 8]], "mask", mask="iVBORw0KGgo="),
        shape("egg", [[10, 5], [15, 10], [10, 15], [5, 10]], "rotation"),
    )
    assert boxes == [
        [1.5, 2, 11, 12.25],
        [1, 2, 11, 12],
        [1, 2, 11, 12],
        [1, 2, 11, 12],
        [5, 3, 20, 25],
        [5, 3, 20, 25],
        [15, 10, 25, 20],
        [3, 4, 9, 8],
        [5, 5, 15, 15],
    ]
    assert names == ["tea", "jam", "jam", "jam", "tea", "tea", "egg", "egg", "egg"]
    assert problems.count("\n") == 0  # only the split that is made


def test_what_has_no_box_is_named(tmp_path: Path) -> None:
    kinds = ("point", "line", "linestrip", "points", "sculpture")
    boxes, names, problems = opened(
        tmp_path, *(shape("tea", [[1, 1], [5, 9]], kind) for kind in kinds), shape("tea", [[1, 1], [5, 9]])
    )
    assert (boxes, names) == ([[1, 1, 5, 9]], ["tea"])
    for number, kind in enumerate(kinds, 1):
        assert f"a.json shape {number} (tea): {kind} has no box (left out)" in problems


def test_damaged_shapes_are_named_and_the_rest_used(tmp_path: Path) -> None:
    boxes, names, problems = opened(
        tmp_path,
        "no shape",
        shape("tea", None),
        shape("tea", [[1, 2]]),
        shape("tea", [[1, "x"], [5, 9]]),
        shape("tea", [[1, float("nan")], [5, 9]]),
        shape("tea", [[1, 2], [float("inf"), 9]]),
        shape("", [[1, 1], [5, 9]]),
        shape(None, [[1, 1], [5, 9]]),
        shape("tea", [[50, 50], [60, 60]]),
        shape("tea", [[5, 5], [5, 9]]),
        shape("tea", [[5, 5], [float("nan"), 9]], "circle"),
        shape(7, [[30, 20], [60, 25]], flags=["not", "flags"]),
        imageHeight="30",
    )
    assert (boxes, names) == ([[30, 20, 40, 25]], ["7"])
    for expected in (
        "shape 1 (no label): polygon is damaged: it has fewer than two points (left out)",
        "shape 2 (tea): rectangle is damaged: it has fewer than two points",
        "shape 3 (tea): rectangle is damaged: it has fewer than two points",
        "shape 4 (tea): rectangle is damaged: 'x' is not a number",
        "shape 5 (tea): box [nan, nan, nan, nan] has a side that is not a number (left out)",
        "shape 6 (tea): box [nan, nan, nan, nan] has a side that is not a number",
        "shape 7 (no label): has no label",
        "shape 8 (no label): has no label",
        "shape 9 (tea): box [50, 50, 60, 60] lies outside",
        "shape 10 (tea): box [5, 5, 5, 9] is empty",
        "shape 11 (tea): box [nan, nan, nan, nan] has a side that is not a number",
        "shape 12 (7): box [30, 20, 60, 25] extends beyond the image",
    ):
        assert expected in problems, expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": "5.0.1", "shapes": [{"label": "tea"', "cannot be parsed as JSON"),
        ("", "cannot be parsed as JSON"),
        ("[" * 100_000, "cannot be parsed as JSON"),
        ("[]", "has no list 'shapes'"),
        ('{"shapes": {}}', "has no list 'shapes'"),
        ('{"shapes": null, "imagePath": "b.png"}', "has no list 'shapes'"),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_used(text: str, message: str, tmp_path: Path) -> None:
    for name in ("a", "c"):
        put(tmp_path / f"{name}.json")
    put(tmp_path / "b.json", text)
    source = open_source(tmp_path)
    assert set(records_by_key(source)) == {"a.png", "c.png"}
    assert message in problem_lines(source)
    assert "b.png: is in no annotation file; assumed to be not annotated yet (left out)" in problem_lines(
        source
    )


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ("b.png", "b.png"),
        (r"..\photos\b.png", "b.png"),
        ("C:/Users/me/b.png", "b.png"),
        ("/home/me/b.png", "b.png"),
        ("renamed-since.png", "a.png"),  # the image of the same name as the file
        ("", "a.png"),
        (None, "a.png"),
        (7, "a.png"),
    ],
)
def test_the_image_is_what_the_file_names_or_of_its_name(named: object, wanted: str, tmp_path: Path) -> None:
    put(tmp_path / "a.json", content(shape("tea", [[1, 1], [5, 9]]), image=named))
    put(tmp_path / "c.json")
    write_image(tmp_path / "b.png", np.zeros((30, 40, 3), dtype=np.uint8))
    assert set(records_by_key(open_source(tmp_path))) == {wanted, "c.png"}


def test_files_in_a_folder_of_their_own_and_in_splits(tmp_path: Path) -> None:
    for split, num in (("train", 3), ("val", 2), ("test", 1)):
        for i in range(num):
            text = content(shape(f"class {i}", [[1, 1], [5, 9]]), image=f"..\\..\\images\\{split}\\{i}.png")
            put(tmp_path / "labels" / split / f"{i}.json", text, image=f"../../images/{split}/{i}.png")
    source = open_source(tmp_path)
    assert source.format == "labelme"
    assert split_sizes(source) == {"train": 3, "val": 2, "test": 1}
    assert source.classes == ("class 0", "class 1", "class 2")
    assert source.problems == ()


def test_a_class_list_and_flags(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("tea\njam\nunused\n")
    boxes, names, problems = opened(
        tmp_path,
        shape("jam", [[1, 1], [5, 9]], flags={"difficult": True, "blurred": True}),
        shape("tea", [[1, 1], [5, 9]], flags={"difficult": False}),
        shape("tee", [[1, 1], [5, 9]]),
    )
    assert (len(boxes), names) == (2, ["jam", "tea"])
    assert "class 'tee' is not among the classes of the set; did you mean 'tea'?" in problems
    source = open_source(tmp_path)
    assert source.classes == ("tea", "jam", "unused")
    assert records_by_key(source)["a.png"].target.difficult.tolist() == [True, False]


def test_an_image_without_a_file_is_not_background_and_one_without_shapes_is(tmp_path: Path) -> None:
    put(tmp_path / "a.json")
    put(tmp_path / "b.json", content(image="b.png"))
    write_image(tmp_path / "later.png", np.zeros((30, 40, 3), dtype=np.uint8))
    source = open_source(tmp_path)
    assert set(records_by_key(source)) == {"a.png", "b.png"}
    assert "later.png: is in no annotation file" in problem_lines(source)


def test_without_any_image_there_is_advice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        put(tmp_path / f"{name}.json")
        (tmp_path / f"{name}.png").unlink()
    with pytest.raises(DataError, match=r"has none of the 2 annotated images, such as a.png") as raised:
        open_source(tmp_path)
    assert "copy the images into" in raised.value.advice


def test_embedded_image_data_does_not_hide_the_format(tmp_path: Path) -> None:
    for name in ("a", "b"):
        data = {"imageData": "A" * 200_000, **content(shape("tea", [[1, 1], [5, 9]]), image=f"{name}.png")}
        put(tmp_path / f"{name}.json", {**data, "imageData": "A" * 200_000})
    assert open_source(tmp_path).format == "labelme"
