"""Open Images: CSV files of boxes for images of which only some are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import SOURCES, open_source
from boxcrew.testing.sources import check_invariants, check_opens_the_same
from tests.helpers.labels import draw, kinds_of, objects_of, write
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
    "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
)
NAMES = '/m/011k07,Tortoise\n/m/0cmf2,"Airplane, jet"\n/m/0unused,Unused\n'
MORE = "".join(f"{i:016x},xclick,/m/0cmf2,1,0.1,0.2,0.1,0.2,0,0,0,0,0\n" for i in range(50))
TRAIN = f"""{HEADER}
000002b66c9c498e,xclick,/m/011k07,1,0.0125,0.195312,0.148438,0.5875,0,1,0,0,0
000002b66c9c498e,xclick,/m/0cmf2,1,0.25,0.75,0.5,1,0,1,1,0,0
{MORE}000002b97e5471a0,activemil,/m/0cmf2,1,0,1,0,0.5,0,0,0,0,0
"""
VALIDATION = f"""{HEADER}
0001eeaf4aed83f9,xclick,/m/0cmf2,1,0.5,0.75,0.1,0.2,0,0,0,0,0
"""


def make(root: Path) -> Path:
    write(root / "oidv6-train-annotations-bbox.csv", TRAIN)
    write(root / "validation-annotations-bbox.csv", VALIDATION)
    write(root / "class-descriptions-boxable.csv", NAMES)
    draw(root / "train", "000002b66c9c498e.jpg", "000002b97e5471a0.jpg", width=400, height=200)
    draw(root / "validation", "0001eeaf4aed83f9.jpg", width=400, height=200)
    return root


def test_boxes_of_the_images_that_are_there(tmp_path: Path) -> None:
    source = open_source(make(tmp_path))
    assert source.format == "open_images"
    assert source.classes == ("Airplane, jet", "Tortoise")
    assert split_sizes(source) == {"train": 2, "val": 1}
    assert objects_of(source) == {
        "train/000002b66c9c498e.jpg": [
            ("Tortoise", (5.0, 29.688, 78.125, 117.5)),
            ("Airplane, jet", (100.0, 100.0, 300.0, 200.0)),
        ],
        "train/000002b97e5471a0.jpg": [("Airplane, jet", (0.0, 0.0, 400.0, 100.0))],
        "validation/0001eeaf4aed83f9.jpg": [("Airplane, jet", (200.0, 20.0, 300.0, 40.0))],
    }
    assert records_by_key(source)["train/000002b66c9c498e.jpg"].target.crowd.tolist() == [False, True]
    check_invariants(source)
    check_opens_the_same(tmp_path, seed=1)


def test_boxes_of_other_images_are_one_problem(tmp_path: Path) -> None:
    source = open_source(make(tmp_path))
    assert len(source.problems) == 1
    assert "oidv6-train-annotations-bbox.csv: 50 objects of images that are not here" in problem_lines(source)


def test_the_layout_of_fiftyone(tmp_path: Path) -> None:
    for split, text in {"train": TRAIN, "validation": VALIDATION}.items():
        write(tmp_path / split / "labels" / "detections.csv", text)
        write(tmp_path / split / "metadata" / "classes.csv", NAMES)
    draw(tmp_path / "train" / "data", "000002b66c9c498e.jpg", "000002b97e5471a0.jpg")
    draw(tmp_path / "validation" / "data", "0001eeaf4aed83f9.jpg")
    source = open_source(tmp_path)
    assert source.classes == ("Airplane, jet", "Tortoise")
    assert split_sizes(source) == {"train": 2, "val": 1}


def test_one_file_and_class_folders_of_the_oid_toolkit(tmp_path: Path) -> None:
    file = write(tmp_path / "csv_folder" / "train-annotations-bbox.csv", TRAIN)
    write(tmp_path / "csv_folder" / "class-descriptions-boxable.csv", NAMES)
    names = ["Tortoise/000002b66c9c498e.jpg", "Airplane/000002b97e5471a0.jpg"]
    draw(tmp_path / "Dataset" / "train", *names)
    for path in (file, tmp_path):
        assert sorted(objects_of(open_source(path))) == sorted(f"Dataset/train/{name}" for name in names)


def test_an_image_that_is_there_twice_is_reported(tmp_path: Path) -> None:
    draw(make(tmp_path) / "train" / "copy", "000002b66c9c498e.jpg")
    source = open_source(tmp_path)
    assert "000002b66c9c498e may be" in problem_lines(source)
    assert "train/000002b66c9c498e.jpg" not in objects_of(source)


def test_ids_stand_for_names_that_are_missing(tmp_path: Path) -> None:
    write(make(tmp_path) / "class-descriptions-boxable.csv", "/m/011k07,Tortoise\n")
    source = open_source(tmp_path)
    assert source.classes == ("/m/0cmf2", "Tortoise")
    assert "class /m/0cmf2 has no name" in problem_lines(source)


def test_faulty_rows_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    image = "000002b66c9c498e"
    rows = [
        f"{image},xclick,/m/0cmf2,1,0.1,0.2,x,0.2,0,0,0,0,0",
        f"{image},xclick,/m/0cmf2,1,0.1,nan,0.1,0.2,0,0,0,0,0",
        f"{image},xclick,,1,0.1,0.2,0.1,0.2,0,0,0,0,0",
        f"{image},xclick,/m/0cmf2,1,0.1,0.2",
    ]
    text = TRAIN + "\n".join(rows)
    write(make(tmp_path) / "oidv6-train-annotations-bbox.csv", text)
    source = open_source(tmp_path)
    assert len(objects_of(source)[f"train/{image}.jpg"]) == 2
    start, lines = len(TRAIN.splitlines()), problem_lines(source)
    assert f"line {start + 1}: box is not four numbers" in lines
    assert f"line {start + 2}: box [40, 20, nan, 40] has a side" in lines
    assert f"line {start + 3}: has no LabelName" in lines
    assert f"line {start + 4}: box is not four numbers" in lines


def test_a_set_without_its_images_says_so(tmp_path: Path) -> None:
    write(tmp_path / "train-annotations-bbox.csv", TRAIN)
    with pytest.raises(DataError) as caught:
        open_source(tmp_path)
    assert "no usable training image" in caught.value.message
    assert "53 objects of images that are not here" in caught.value.advice


def test_a_table_of_labels_is_not_one_of_boxes(tmp_path: Path) -> None:
    file = write(tmp_path / "train-annotations-human.csv", "ImageID,Source,LabelName,Confidence\na,b,c,1\n")
    assert not SOURCES.get("open_images").detect(file)
    assert kinds_of(open_source(make(tmp_path))) == {"annotation-without-image"}
