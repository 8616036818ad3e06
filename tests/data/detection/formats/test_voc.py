"""Pascal VOC in the devkit's layout and in LabelImg's."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.reading import write_image
from boxcrew.testing.sources import check_invariants
from tests.helpers.sources import problem_lines, records_by_key, split_sizes

BOMB = """<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><annotation><filename>&c;</filename></annotation>"""


def xml_object(name: str, box: Sequence[object], extra: str = "") -> str:
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=False)
    inner = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    return f"<object><name>{name}</name>{extra}<bndbox>{inner}</bndbox></object>"


def annotation_xml(*objects: str, filename: str = "", size: tuple[int, int] = (40, 30)) -> str:
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation><filename>{filename}</filename>{sides}{''.join(objects)}</annotation>"


def put(image: Path, xml: Path, text: str | None = None) -> None:
    for path in (image, xml):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_image(image, np.zeros((30, 40, 3), dtype=np.uint8))
    xml.write_text(annotation_xml(xml_object("tea", (1, 2, 11, 12))) if text is None else text)


def devkit(root: Path, files: dict[str, str | None], **lists: Sequence[str]) -> Path:
    for name, text in files.items():
        put(root / "JPEGImages" / f"{name}.jpg", root / "Annotations" / f"{name}.xml", text)
    for split, names in lists.items():
        file = root / "ImageSets" / "Main" / f"{split}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(names) + "\n")
    return root


def test_devkit_objects(tmp_path: Path) -> None:
    text = annotation_xml(
        xml_object(" tea ", (1.5, 2, 11, 12.25), "<difficult>1</difficult><truncated>1</truncated>"),
        xml_object("jam", (0, 0, 40, 30), "<difficult>0</difficult>"),
        xml_object("jam", (3, 3, 9, 9), "<part><name>lid</name><bndbox><xmin>0</xmin></bndbox></part>"),
    )
    source = open_source(devkit(tmp_path, {"a": text, "b": annotation_xml()}, train=["a"], val=["b"]))
    assert source.format == "voc"
    assert source.classes == ("jam", "tea")
    assert [(p.kind, p.file) for p in source.problems] == [("empty-annotation", "Annotations/b.xml")]
    (record,) = source.split("train")
    assert record.key == "JPEGImages/a.jpg"
    np.testing.assert_array_equal(record.target.boxes, [[1.5, 2, 11, 12.25], [0, 0, 40, 30], [3, 3, 9, 9]])
    assert record.target.labels.tolist() == [1, 0, 0]
    assert record.target.difficult.tolist() == [True, False, False]
    assert len(source.split("val")[0].target) == 0  # background is kept


def test_lists_of_classes_are_not_splits(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    files = dict.fromkeys(names)
    lists = {"train": ["a", "b"], "val": ["c"], "tea_train": ["a  1", "b -1"], "tea_val": ["c  1"]}
    source = open_source(devkit(tmp_path, files, **lists))
    assert split_sizes(source) == {"train": 2, "val": 1}
    assert source.problems == ()


@pytest.mark.parametrize(
    ("lists", "wanted"),
    [
        ({"trainval": "abcdefghij"}, {"train": 8, "val": 2}),
        ({"trainval": "abcdef", "val": "ef", "test": "ghij"}, {"train": 4, "val": 2, "test": 4}),
        ({"trainval": "abcdef", "train": "abcd", "test": "ghij"}, {"train": 4, "val": 2, "test": 4}),
        ({"train": "abcde", "test": "fghij"}, {"train": 4, "val": 1, "test": 5}),
        ({}, {"train": 8, "val": 2}),
    ],
)
def test_missing_splits(lists: dict[str, str], wanted: dict[str, int], tmp_path: Path) -> None:
    source = open_source(devkit(tmp_path, dict.fromkeys("abcdefghij"), **lists))
    assert split_sizes(source) == wanted
    made = "val" not in lists and not {"train", "trainval"} <= set(lists)
    assert ("has no validation split" in problem_lines(source)) == made
    check_invariants(source)


def test_class_list_orders_classes_and_refuses_others(tmp_path: Path) -> None:
    text = annotation_xml(xml_object("tea", (1, 1, 9, 9)), xml_object("cofee", (1, 1, 9, 9)))
    devkit(tmp_path, {"a": text, "b": None}, train=["a"], val=["b"])
    (tmp_path / "classes.txt").write_text("tea\ncoffee\njam\n")
    source = open_source(tmp_path)
    assert source.classes == ("tea", "coffee", "jam")
    assert source.split("train")[0].target.labels.tolist() == [0]
    assert "did you mean 'coffee'?" in problem_lines(source)
    assert "Annotations/a.xml object 2 (cofee)" in problem_lines(source)


def test_everything_wrong_is_named_and_the_rest_used(tmp_path: Path) -> None:
    files = {
        "good": None,
        "bomb": BOMB,
        "torn": "<annotation><object>",
        "foreign": "<svg/>",
        "escape": annotation_xml(filename="../../secret.jpg"),
        "boxes": annotation_xml(
            xml_object("tea", (1, 1, "x", 9)),
            xml_object("tea", (1, 1)),
            xml_object("tea", ("nan", 1, 2, 3)),
            xml_object("", (1, 1, 9, 9)),
            xml_object("tea", (9, 9, 1, 1)),
            xml_object("tea", (50, 50, 60, 60)),
        ),
        "size": annotation_xml(size=(400, 300)),
    }
    devkit(tmp_path, files, train=[*files, "absent", "good"], val=["gone"])
    put(tmp_path / "JPEGImages" / "gone.jpg", tmp_path / "Annotations" / "gone.xml")
    (tmp_path / "JPEGImages" / "gone.jpg").unlink()
    put(tmp_path / "JPEGImages" / "spare.jpg", tmp_path / "Annotations" / "spare.xml")
    write_image(tmp_path / "JPEGImages" / "bare.jpg", np.zeros((30, 40, 3), dtype=np.uint8))
    start = time.monotonic()
    source = open_source(tmp_path)
    assert time.monotonic() - start < 1
    check_invariants(source)
    used = {Path(record.key).stem for record in records_by_key(source).values()}
    assert used == {"good", "boxes", "size"}
    messages = problem_lines(source)
    for expected in (
        "Annotations/bomb.xml: cannot be parsed",
        "Annotations/torn.xml: cannot be parsed",
        "first element is <svg>",
        "leaves the data set: ../../secret.jpg (left out)",
        "boxes.xml object 1 (tea): box is not four numbers",
        "boxes.xml object 2 (tea): box is not four numbers",
        "boxes.xml object 3 (tea): box [nan, 1, 2, 3] has a side that is not a number (left out)",
        "boxes.xml object 4 (no name): has no <name>",
        "boxes.xml object 5 (tea): box [9, 9, 1, 1] has its corners swapped (repaired)",
        "boxes.xml object 6 (tea): box [50, 50, 60, 60] lies outside",
        "says the image is 400 x 300, but upright it is 40 x 30 (noted)",
        "absent has no Annotations/absent.xml",
        "good.jpg is listed again",
        "no image gone.* or of another name belongs to it",
        "1 file not listed in ImageSets/Main",
        "JPEGImages/bare.jpg: has no .xml file; assumed to be not annotated yet (left out)",
    ):
        assert expected in messages, expected


ENTITIES = {
    "xml-bomb": b'<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><annotation>&c;</annotation>',
    "xml-external-entity": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation>&b;</annotation>',
    "unreadable-annotation": b"<annotation>&b;</annotation>",
}


@pytest.mark.parametrize("kind", ENTITIES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp037", "latin-1"])
def test_entities_are_refused_in_any_encoding(kind: str, encoding: str, tmp_path: Path) -> None:
    devkit(tmp_path, {"a": None, "b": None, "bad": None}, train=["a", "bad"], val=["b"])
    declared = encoding.removesuffix("-sig")
    text = ENTITIES[kind].decode()
    if encoding == "cp037":  # the declaration is read as ASCII, and what follows is not
        content = b'<?xml version="1.0" encoding="cp037"?>' + text.encode("cp037")
    else:
        content = f'<?xml version="1.0" encoding="{declared}"?>{text}'.encode(encoding)
    (tmp_path / "Annotations" / "bad.xml").write_bytes(content)
    source = open_source(tmp_path)
    (problem,) = source.problems
    assert (problem.file, problem.action) == ("Annotations/bad.xml", "left out")
    assert problem.kind in {kind, "unreadable-annotation"}
    if encoding in {"utf-8", "latin-1"}:
        assert problem.kind == kind
    assert [record.key for record in source.split("train")] == ["JPEGImages/a.jpg"]


def test_flat_layout_of_labelimg(tmp_path: Path) -> None:
    for i in range(10):
        put(tmp_path / f"my photo {i}.jpg", tmp_path / f"my photo {i}.xml")
    write_image(tmp_path / "later.png", np.zeros((8, 8, 3), dtype=np.uint8))
    source = open_source(tmp_path)
    assert source.format == "voc"
    assert split_sizes(source) == {"train": 8, "val": 2}
    assert "2 of its 10 training images are used for validation (seed 0)" in problem_lines(source)
    assert "later.png: has no .xml file" in problem_lines(source)
    again = open_source(tmp_path, seed=5)
    assert [r.key for r in again.split("val")] != [r.key for r in source.split("val")]


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
@pytest.mark.parametrize("inner", [("", ""), ("annotations", "images"), ("Annotations", "JPEGImages")])
def test_split_folders(val: str, inner: tuple[str, str], tmp_path: Path) -> None:
    for folder, num in (("train", 3), (val, 2), ("test", 1)):
        for i in range(num):
            put(tmp_path / folder / inner[1] / f"{i}.jpg", tmp_path / folder / inner[0] / f"{i}.xml")
    source = open_source(tmp_path)
    assert split_sizes(source) == {"train": 3, "val": 2, "test": 1}
    assert source.problems == ()


def test_images_and_annotations_folders_in_small_letters(tmp_path: Path) -> None:
    for i in range(5):
        put(tmp_path / "images" / f"{i}.png", tmp_path / "annotations" / f"{i}.xml")
    assert split_sizes(open_source(tmp_path)) == {"train": 4, "val": 1}


def test_file_name_decides_between_images_and_helps_where_stems_differ(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg", tmp_path / "a.xml", annotation_xml(filename="a.png"))
    put(tmp_path / "a.png", tmp_path / "b.xml", annotation_xml(filename=r"C:\photos\other.jpg"))
    write_image(tmp_path / "other.jpg", np.zeros((30, 40, 3), dtype=np.uint8))
    source = open_source(tmp_path)
    keys = set(records_by_key(source))
    assert keys == {"a.png", "other.jpg"}


def test_folder_that_holds_the_devkit(tmp_path: Path) -> None:
    devkit(tmp_path / "VOCdevkit" / "VOC2007", dict.fromkeys("ab"), train="a", val="b")
    for path in (tmp_path, tmp_path / "VOCdevkit", tmp_path / "VOCdevkit" / "VOC2007"):
        assert open_source(path).split("train")[0].key == "JPEGImages/a.jpg"
    devkit(tmp_path / "VOCdevkit" / "VOC2012", dict.fromkeys("ab"), train="a", val="b")
    with pytest.raises(DataError, match="VOC2007, VOC2012"):
        open_source(tmp_path)


def test_groceries(shared_data: Path) -> None:
    start = time.process_time()
    source = open_source(shared_data / "groceries8_voc")
    assert time.process_time() - start < 1.5
    assert source.format == "voc"
    assert source.classes == ("juice", "coffee", "chocolate", "tea", "cereal", "jam", "pasta", "chips")
    assert split_sizes(source) == {"train": 720, "val": 240}
    assert sum(len(record.target) for record in records_by_key(source).values()) == 2306
    assert source.problems == ()
    check_invariants(source)


def test_blood_cells(shared_data: Path) -> None:
    source = open_source(shared_data / "bccd_voc")
    assert source.format == "voc"
    assert split_sizes(source) == {"train": 205, "val": 87, "test": 72}
    labels = np.concatenate([record.target.labels for record in records_by_key(source).values()])
    counts = Counter(source.classes[label] for label in labels)
    assert counts == {"RBC": 4153, "WBC": 372, "Platelets": 361}
    assert len(source.problems) == 2
    assert "BloodImage_00338" in problem_lines(source)
    assert "BloodImage_00343" in problem_lines(source)
    check_invariants(source)
