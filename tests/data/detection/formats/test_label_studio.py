"""Label Studio's JSON and JSON-MIN exports, and damaged ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.reading import write_image
from boxcrew.testing.sources import check_invariants
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

PERCENT = {"x": 25, "y": 10, "width": 50, "height": 40, "rotation": 0}  # 10, 3, 30, 15 of 40 x 30


def result(kind: str, value: object, **fields: Any) -> dict[str, Any]:
    sizes = {"original_width": 40, "original_height": 30, "image_rotation": 0}
    names = {"id": "Dx_aB91ISN", "from_name": "label", "to_name": "image", "origin": "manual"}
    return {**names, **sizes, "type": kind, "value": value, **fields}


def rectangle(label: str, **sides: Any) -> dict[str, Any]:
    return result("rectanglelabels", {**PERCENT, **sides, "rectanglelabels": [label]})


def annotation(*results: object, **fields: Any) -> dict[str, Any]:
    dates = {"created_at": "2024-05-01T08:00:00.000000Z", "updated_at": "2024-05-01T08:00:00.000000Z"}
    return {"id": 7, "completed_by": 1, "result": list(results), "was_cancelled": False, **dates, **fields}


def task(number: object, image: object, *annotations: object, **fields: Any) -> dict[str, Any]:
    rest = {"drafts": [], "predictions": [], "meta": {}, "project": 3, "file_upload": "11aa22bb-a.png"}
    return {"id": number, "annotations": list(annotations), "data": {"image": image}, **rest, **fields}


def draw(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_image(root / name, np.zeros((30, 40, 3), dtype=np.uint8))


def write(root: Path, *tasks: object, name: str = "project-3-at-2024-05-01.json") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(tasks))
    return root / name


def opened(root: Path, *results: object) -> tuple[list[list[float]], list[str], str]:
    """The boxes and class names of an image with these results, and the problems."""
    draw(root, "images/a.png", "images/z.png")
    write(
        root,
        task(1, "/data/upload/3/11aa22bb-a.png", annotation(*results)),
        task(2, "/data/upload/3/33cc44dd-z.png", annotation(rectangle("last"))),
    )
    source = open_source(root)
    assert source.format == "label_studio"
    check_invariants(source)
    target = records_by_key(source)["images/a.png"].target
    return target.boxes.tolist(), [source.classes[label] for label in target.labels], problem_lines(source)


def test_regions_become_boxes(tmp_path: Path) -> None:
    boxes, names, problems = opened(
        tmp_path,
        rectangle("tea"),
        rectangle("jam", x=50, y=50, width=10, height=20, rotation=90),  # 4 x 6 pixels around 20, 15
        result("polygonlabels", {"points": [[25, 10], [50, 20], [30, 50]], "polygonlabels": ["tea"]}),
        result(
            "ellipselabels",
            {"x": 50, "y": 50, "radiusX": 25, "radiusY": 10, "rotation": 90, "ellipselabels": ["egg"]},
        ),
        result("rectanglelabels", {**PERCENT, "rectanglelabels": ["tea", "jam"]}),
        result("choices", {"choices": ["good photo"]}),
        {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right"},
    )
    wanted = [[10, 3, 30, 15], [14, 15, 20, 19], [10, 3, 20, 15], [17, 5, 23, 25]]
    np.testing.assert_allclose(boxes, [*wanted, wanted[0], wanted[0]], atol=1e-4)
    assert names == ["tea", "jam", "tea", "egg", "tea", "jam"]
    assert problems.count("\n") == 0  # only the split that is made


def test_a_label_of_its_own_tag_belongs_to_the_rectangle_of_its_id(tmp_path: Path) -> None:
    boxes, names, problems = opened(
        tmp_path,
        result("rectangle", PERCENT, id="r1"),
        result("labels", {**PERCENT, "labels": ["tea"]}, id="r1"),
        result("rectangle", PERCENT, id="r2"),
    )
    assert (np.round(boxes, 4).tolist(), names) == ([[10, 3, 30, 15]], ["tea"])
    assert "task 1 region 3 (no label): has no label (left out)" in problems


def test_what_cannot_be_used_is_named_and_the_rest_used(tmp_path: Path) -> None:
    boxes, names, problems = opened(
        tmp_path,
        result("brushlabels", {"format": "rle", "rle": [0, 1], "brushlabels": ["tea"]}),
        result("keypointlabels", {"x": 1, "y": 2, "width": 0.3, "keypointlabels": ["tea"]}),
        rectangle("tea", x=None),
        rectangle("tea", width="wide"),
        rectangle("tea", x=float("nan")),
        rectangle("tea", x=200),
        rectangle("tea", rotation="round"),
        {**rectangle("tea", rotation=45), "original_width": None},
        {**rectangle("tea"), "image_rotation": 90},
        result("polygonlabels", {"points": [[1, 2]], "polygonlabels": ["tea"]}),
        result("polygonlabels", {"points": "1,2", "polygonlabels": ["tea"]}),
        rectangle(" "),
        "no result",
        result("rectanglelabels", None),
        rectangle("jam"),
    )
    assert (np.round(boxes, 4).tolist(), names) == ([[10, 3, 30, 15]], ["jam"])
    for expected in (
        "task 1 region 1 (tea): brush has no box (left out)",
        "region 2 (tea): keypoint has no box",
        "region 3 (tea): rectangle is damaged: x is None",
        "region 4 (tea): rectangle is damaged: width is 'wide'",
        "region 5 (tea): box [nan, 3, nan, 15] has a side that is not a number",
        "region 6 (tea): box [80, 3, 100, 15] lies outside",
        "region 7 (tea): rectangle is damaged: 'round' is not a number",
        "region 8 (tea): rectangle is damaged: it is rotated, and original_width or original_height",
        "region 9 (tea): rectangle is damaged: it was drawn on the image rotated by 90 degrees",
        "region 10 (tea): polygon is damaged: it has fewer than two points",
        "region 11 (tea): polygon is damaged: it has fewer than two points",
    ):
        assert expected in problems, expected


def test_skipped_tasks_and_predictions_are_not_labels(tmp_path: Path) -> None:
    draw(tmp_path, *(f"{name}.png" for name in "abcd"))
    write(
        tmp_path,
        task(1, "a.png", annotation(rectangle("tea"))),
        task(2, "b.png", annotation(rectangle("jam"), was_cancelled=True)),
        task(3, "c.png", predictions=[{"result": [rectangle("jam")], "score": 0.9}]),
        task(4, "d.png", annotation()),  # annotated: there is nothing
    )
    source = open_source(tmp_path)
    assert source.classes == ("tea",)
    assert {key: len(record.target) for key, record in records_by_key(source).items()} == {
        "a.png": 1,
        "d.png": 0,
    }
    for number, name in ((2, "b"), (3, "c")):
        assert f"task {number}: {name}.png is not annotated yet (left out)" in problem_lines(source)
    assert "is in no annotation file" not in problem_lines(source)


def test_of_several_annotations_the_one_updated_last_counts(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png")
    dates = ("2024-05-02T08:00:00Z", "2024-05-03T08:00:00Z", "2024-05-01T08:00:00Z")
    versions = [annotation(rectangle(f"v{i}"), updated_at=date) for i, date in enumerate(dates)]
    skipped = annotation(rectangle("skipped"), was_cancelled=True, updated_at="2024-06-01T08:00:00Z")
    write(tmp_path, task(1, "a.png", *versions, skipped), task(2, "b.png", annotation(rectangle("v1"))))
    source = open_source(tmp_path)
    assert source.classes == ("v1",)
    assert (
        "2024-05-01.json task 1: has 3 annotations; the one that was updated last is used (noted)"
        in problem_lines(source)
    )


def test_json_min(tmp_path: Path) -> None:
    draw(tmp_path, "images/a.png", "images/b.png", "images/c.png")
    region = {**PERCENT, "rectanglelabels": ["tea"], "original_width": 40, "original_height": 30}
    stamp = {"annotator": 1, "annotation_id": 5, "created_at": "2024-05-01", "lead_time": 3.1}
    later = {**region, "rectanglelabels": ["jam"]}
    write(
        tmp_path,
        {"id": 1, "photo": "/data/upload/3/11aa22bb-a.png", "label": [region], "updated_at": "2", **stamp},
        {
            "id": 1,
            "photo": "/data/upload/3/11aa22bb-a.png",
            "label": [later, "x"],
            "updated_at": "3",
            **stamp,
        },
        {"id": 2, "photo": "/data/upload/3/33cc44dd-b.png", "kind": "good", "updated_at": "1", **stamp},
        {
            "id": 3,
            "photo": "/data/upload/3/33cc44dd-c.png",
            "kind": {"choices": []},
            "label": [region],
            **stamp,
        },
    )
    source = open_source(tmp_path)
    assert source.format == "label_studio"
    records = records_by_key(source)
    names = {key: [source.classes[i] for i in record.target.labels] for key, record in records.items()}
    assert names == {"images/a.png": ["jam"], "images/b.png": [], "images/c.png": ["tea"]}
    np.testing.assert_allclose(records["images/a.png"].target.boxes, [[10, 3, 30, 15]], atol=1e-4)
    assert "task 1: has 2 annotations" in problem_lines(source)


URI = base64.b64encode(b"s3://bucket/shop/a b.png").decode()


@pytest.mark.parametrize(
    "name",
    [
        "https://tool.example/data/upload/3/a%20b.png?token=1",
        "/data/upload/3/1234abcd-a%20b.png",
        "/data/local-files/?d=shop/images/a%20b.png",
        "/label-studio/data/upload/3/a b.png",
        "s3://bucket/shop/a b.png",
        f"/tasks/4/presign/?fileuri={URI}",
        f"https://tool.example/tasks/4/resolve/?fileuri={URI}",
        "../../shop/a b.png",
        r"images\1\a b.png",
    ],
)
@pytest.mark.parametrize("key", ["image", "photo"])
def test_images_are_found_by_the_names_of_its_storages(name: str, key: str, tmp_path: Path) -> None:
    draw(tmp_path, "pictures/a b.png", "pictures/z.png")
    first = {**task(1, "", annotation(rectangle("tea"))), "data": {"customer": "shop 7", key: name}}
    file = write(tmp_path, first, task(2, "z.png", annotation(rectangle("tea"))))
    for path in (tmp_path, file):
        assert set(records_by_key(open_source(path))) == {"pictures/a b.png", "pictures/z.png"}


def test_tasks_without_a_known_image_are_named(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png", "d/twice.png", "e/twice.png")
    good = annotation(rectangle("tea"))
    write(
        tmp_path,
        task(1, "a.png", good),
        task(2, "b.png", good),
        task(3, "c.png", good),
        task(4, "", good),
        task(5, None, good),
        {**task(6, "x", good), "data": "no data"},
        {**task(7, "a.png"), "annotations": "none"},
        task(8, "a.png", {"id": 1}),
        task(9, "data:image/png;base64," + "A" * 10_000, good),
        task(10, "twice.png", good),
        "no task",
        17,
    )
    source = open_source(tmp_path)
    assert set(records_by_key(source)) == {"a.png", "b.png"}
    lines = problem_lines(source)
    for expected in (
        "task 3: there is no image file c.png",
        "task 4: names no image",
        "task 5: names no image",
        "task 6: names no image",
        "task 7: an annotation has no list 'result'",
        "task 8: an annotation has no list 'result'",
        "task 9: there is no image file data:image/png;base64,AAA",
        "task 10: twice.png may be d/twice.png or e/twice.png",
        "task number 11: names no image",
        "task number 12: names no image",
    ):
        assert expected in lines, expected
    assert max(map(len, lines.splitlines())) < 300


def test_a_file_cut_short_is_an_error_that_names_it(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", "b.png")
    file = write(tmp_path, task(1, "a.png", annotation(rectangle("tea"))), task(2, "b.png"))
    file.write_text(file.read_text()[:-60])
    for path in (tmp_path, file):
        with pytest.raises(DataError, match="has no usable training image") as raised:
            open_source(path)
        assert f"{file.name}: cannot be parsed as JSON" in raised.value.advice


def test_an_export_without_its_images_gets_advice(tmp_path: Path) -> None:
    file = write(
        tmp_path, *(task(i, f"/data/upload/3/{i}.png", annotation(rectangle("tea"))) for i in range(3))
    )
    with pytest.raises(
        DataError, match=r"has none of the 3 annotated images, such as /data/upload/3/0.png"
    ) as raised:
        open_source(file)
    assert f"copy the images into {tmp_path}" in raised.value.advice


def test_splits_from_file_names_or_from_the_folders_of_the_images(tmp_path: Path) -> None:
    names = ("train/a.png", "train/b.png", "val/c.png", "test/d.png")
    draw(tmp_path / "one", *names)
    write(
        tmp_path / "one", *(task(i, Path(n).name, annotation(rectangle("tea"))) for i, n in enumerate(names))
    )
    assert split_sizes(open_source(tmp_path / "one")) == {"train": 2, "val": 1, "test": 1}
    draw(tmp_path / "two", "a.png", "b.png")
    for name, file in (("a.png", "train.json"), ("b.png", "val.json")):
        write(tmp_path / "two", task(1, name, annotation(rectangle("tea"))), name=file)
    assert split_sizes(open_source(tmp_path / "two")) == {"train": 1, "val": 1}


def test_notes_about_a_region_are_its_flags(tmp_path: Path) -> None:
    opened(
        tmp_path,
        {**rectangle("tea"), "meta": {"text": ["difficult"]}},
        {**rectangle("tea"), "meta": {"text": 3}},
    )
    target = records_by_key(open_source(tmp_path))["images/a.png"].target
    assert target.difficult.tolist() == [True, False]


def test_boxes_of_an_image_that_was_not_upright_are_rotated(tmp_path: Path) -> None:
    opened(tmp_path, rectangle("tea"))
    exif = Pillow.Exif()
    exif[0x0112] = 6  # upright it is 30 x 40
    file = tmp_path / "images" / "a.png"
    Pillow.open(file).save(file, exif=exif)
    source = open_source(tmp_path)
    target = records_by_key(source)["images/a.png"].target
    np.testing.assert_allclose(target.boxes, [[15, 10, 27, 30]], atol=1e-4)
    assert "EXIF rotates it, so its boxes are rotated too" in problem_lines(source)
