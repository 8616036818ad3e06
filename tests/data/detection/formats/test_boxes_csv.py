"""CSV files of boxes: layouts with and without header, and the faults found in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.cli.data import holds_samples
from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import SOURCES, open_source
from boxcrew.data.examples.example_set import ExampleOptions, open_examples
from boxcrew.testing.sources import check_invariants, check_opens_the_same
from tests.helpers.labels import draw, kinds_of, objects_of, write
from tests.helpers.sources import problem_lines, split_sizes

OBJECTS = {
    "a.jpg": [("cat", (1.0, 2.0, 20.0, 25.0)), ("dog", (5.0, 6.0, 15.0, 16.0))],
    "b.jpg": [("cat", (0.0, 0.0, 40.0, 30.0))],
}
TENSORFLOW = """filename,width,height,class,xmin,ymin,xmax,ymax
a.jpg,40,30,cat,1,2,20,25
a.jpg,40,30,dog,5,6,15,16
b.jpg,40,30,cat,0,0,40,30
"""
RETINANET = """images/a.jpg,1,2,20,25,cat
images/a.jpg,5,6,15,16,dog
images/b.jpg,0,0,40,30,cat
"""
VOTT = """"image","xmin","ymin","xmax","ymax","label"
"a.jpg",1.0,2.0,20.0,25.0,"cat"
"a.jpg",5.0,6.0,15.0,16.0,"dog"
"b.jpg",0,0,40,30,"cat"
"""
MAKESENSE_ROWS = """cat,1,2,19,23,a.jpg,40,30
dog,5,6,10,10,a.jpg,40,30
cat,0,0,40,30,b.jpg,40,30
"""
MAKESENSE = (
    "label_name,bbox_x,bbox_y,bbox_width,bbox_height,image_name,image_width,image_height\n" + MAKESENSE_ROWS
)
AUTOML = """UNASSIGNED,gs://bucket/photos/a.jpg,cat,0.025,0.0666666667,,,0.5,0.8333333333,,
UNASSIGNED,gs://bucket/photos/a.jpg,dog,0.125,0.2,0.375,0.2,0.375,0.5333333333,0.125,0.5333333333
UNASSIGNED,gs://bucket/photos/b.jpg,cat,0,0,,,1,1,,
"""
WITHOUT_SETS = AUTOML.replace("UNASSIGNED,", "")
SHUFFLED = """YMax;XMax;YMin;XMin;Class;FileName
25;20,0;2;1;cat;a.jpg
16;15;6;5;dog;a.jpg
30;40;0;0;cat;b.jpg
"""


@pytest.mark.parametrize(
    "text",
    [
        TENSORFLOW, RETINANET, VOTT, MAKESENSE, MAKESENSE_ROWS, AUTOML, WITHOUT_SETS, SHUFFLED,
        VOTT.replace(",", "\t"), TENSORFLOW.replace(",", ";"), "\ufeff" + TENSORFLOW.replace("\n", "\r\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("from_file", [False, True])
def test_every_layout_gives_the_same_boxes(text: str, from_file: bool, tmp_path: Path) -> None:
    draw(tmp_path / "images", "a.jpg", "b.jpg")
    file = write(tmp_path / "labels.csv", text)
    source = open_source(file if from_file else tmp_path)
    assert source.format == "boxes_csv"
    assert source.classes == ("cat", "dog")
    assert objects_of(source) == {f"images/{name}": objects for name, objects in OBJECTS.items()}
    assert kinds_of(source) == set()
    check_invariants(source)
    check_opens_the_same(tmp_path, seed=1)


def test_file_names_and_folders_name_the_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        draw(tmp_path / "images" / split, "a.jpg", "b.jpg")  # the same names twice
        write(tmp_path / "data" / f"{split}_labels.csv", TENSORFLOW)
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 1, "val": 1, "test": 2}
    assert {record.key for record in source.split("test")} == {"images/test/a.jpg", "images/test/b.jpg"}


@pytest.mark.parametrize("folder", ["data", "data/images", "images"])
def test_images_of_a_single_table_are_beside_its_folder_or_in_it(folder: str, tmp_path: Path) -> None:
    draw(tmp_path / "set" / folder, "a.jpg", "b.jpg")
    draw(tmp_path / "other", "a.jpg", "b.jpg")
    source = open_source(write(tmp_path / "set" / "data" / "labels.csv", TENSORFLOW))
    assert {Path(key).name: objects for key, objects in objects_of(source).items()} == OBJECTS
    assert kinds_of(source) == set()


def test_roboflow_has_a_table_in_each_split_folder(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        draw(tmp_path / split, "a.jpg", "b.jpg")
        write(tmp_path / split / "_annotations.csv", TENSORFLOW)
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 2, "val": 2}
    assert kinds_of(source) == set()


def test_automl_names_the_split_in_each_row(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    rows = [f"{name},gs://bucket/{image},cat,0,0,,,0.5,0.5,," for name, image in [
        ("TRAIN", "a.jpg"), ("VALIDATION", "b.jpg"), ("TEST", "c.jpg"), ("UNASSIGNED", "d.jpg")]]  # fmt: skip
    source = open_source(write(tmp_path / "set.csv", "\n".join(rows)))
    assert {split: [r.key for r in records] for split, records in source.splits.items()} == {
        "train": ["a.jpg"], "val": ["b.jpg"], "test": ["c.jpg"]}  # fmt: skip
    assert "line 4: belongs to no split" in problem_lines(source)


def test_retinanet_lists_classes_and_images_without_objects(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    write(tmp_path / "annotations.csv", "a.jpg,1,2,20,25,cat\nb.jpg,,,,,\n")
    write(tmp_path / "classes.csv", "dog,1\ncat,0\nbird,2\n")
    source = open_source(tmp_path)
    assert source.classes == ("cat", "dog", "bird")
    assert objects_of(source) == {"a.jpg": [("cat", (1, 2, 20, 25))], "b.jpg": []}


def test_a_class_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg")
    write(tmp_path / "annotations.csv", RETINANET)
    write(tmp_path / "classes.csv", "cat,0\ndog,0\n")
    with pytest.raises(DataError, match=r"classes\.csv: line 2"):
        open_source(tmp_path)


def test_faulty_rows_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    rows = [
        *TENSORFLOW.splitlines(),
        "a.jpg,40,30,cat,1,2,x,25",  # 5
        "a.jpg,40,30,cat,nan,2,20,25",  # 6
        "a.jpg,40,30,,1,2,20,25",  # 7
        "absent.jpg,40,30,cat,1,2,20,25",  # 8
        'b.jpg,40,30,"cat,1,2,20,25',  # 9
        "b.jpg,40,30,cat,1",  # 10
        "b.jpg,40,30,a, cat,1,2,20,25",  # 11
        "../../etc/passwd.jpg,40,30,cat,1,2,20,25",  # 12
        ",40,30,cat,1,2,20,25",  # 13
    ]
    source = open_source(write(tmp_path / "labels.csv", "\n".join(rows)))
    assert objects_of(source) == OBJECTS
    lines = problem_lines(source)
    assert "line 5: box is not four numbers: 1, x, 2, 25" in lines
    assert "line 6: box [nan, 2, 20, 25] has a side" in lines
    assert "line 7: has no class" in lines
    assert "line 8: there is no image file absent.jpg" in lines
    assert "line 9: has a quote" in lines
    assert "line 10: has 5 fields instead of 8" in lines
    assert "line 11: has 9 fields instead of 8" in lines
    assert "line 12: there is no image file ../../etc/passwd.jpg" in lines
    assert "line 13: names no image" in lines


def test_a_second_table_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    write(tmp_path / "train_labels.csv", TENSORFLOW)
    write(tmp_path / "val_labels.csv", "filename,wid")
    (tmp_path / "test_labels.csv").write_bytes(TENSORFLOW.encode("utf-16"))
    lines = problem_lines(open_source(tmp_path))
    assert "val_labels.csv: is not a table of boxes" in lines
    assert "test_labels.csv: is not UTF-8" in lines


@pytest.mark.parametrize("cut", [1, 20, 45, 60, 70, 80, 100])
def test_a_table_cut_anywhere_never_ends_in_a_traceback(cut: int, tmp_path: Path) -> None:
    draw(tmp_path, "a.jpg", "b.jpg")
    file = write(tmp_path / "labels.csv", TENSORFLOW[:cut])
    refusal = None
    try:
        source = SOURCES.get("boxes_csv").open(file)
    except DataError as error:
        refusal = error
    if refusal is None:
        assert list(objects_of(source)) == ["a.jpg"]
    else:
        assert str(tmp_path) in refusal.message
        assert refusal.advice


@pytest.mark.parametrize(
    "text",
    [
        "length,width,class\n1,2,cat\n2,3,dog\n",
        "x1,y1,x2,y2,class\n1,2,3,4,cat\n2,3,4,5,dog\n",
        "image,x1,y1,x2,y2,class\n1,1,2,3,4,cat\n2,2,3,4,5,dog\n",  # numbers of images, not names
        "a,b,c,d,e,kind\n5.1,3.5,1.4,0.2,0,setosa\n4.9,3.0,1.4,0.2,1,virginica\n",
    ],
)
def test_a_table_of_features_is_not_detected(text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "train.csv", text)
    assert not SOURCES.get("boxes_csv").detect(file)
    assert not SOURCES.get("boxes_csv").detect(tmp_path)
    assert holds_samples(str(file), "auto")
    assert holds_samples(str(file), "csv")
    assert open_examples(file, ExampleOptions(), format="auto").format == "csv"


def test_tables_beside_the_voc_files_they_were_made_of_are_not_read(tmp_path: Path) -> None:
    draw(tmp_path / "images", "a.jpg", "b.jpg")
    write(tmp_path / "train_labels.csv", TENSORFLOW)
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>20</xmax><ymax>25</ymax></bndbox>"
    for name in "ab":
        text = (
            f"<annotation><filename>{name}.jpg</filename><object><name>cat</name>{box}</object></annotation>"
        )
        write(tmp_path / "annotations" / f"{name}.xml", text)
    assert open_source(tmp_path).format == "voc"
