"""Each defect that a data set can have, planted in a real one: it is named with its file and kind, the rest
of the set is used, and a run trains on it.

A file that vanishes in the middle of an epoch is in tests/data/test_loader.py
(`test_a_vanished_file_is_left_out_and_named`), a JPEG cut at every byte in tests/data/test_jpeg.py; defects
that only COCO or YOLO files can have are in test_bad_data_formats.py, sets that are made to do harm or are
very large in test_hostile_data.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import Action, ProblemKind
from boxcrew.data.checks.scan import scan
from boxcrew.data.detection.source import Source, open_source
from boxcrew.train.output.outcome import Outcome
from tests.helpers.damage import BILLION_LAUGHS, EXTERNAL_ENTITY, VocSet, write_png_bomb

NUM_TRAIN, NUM_VAL = 40, 6
Expected = tuple[ProblemKind, str, Action]
"""ProblemKind, file, action."""


def of_image(kind: ProblemKind, name: str, action: Action = "left out") -> Expected:
    return kind, f"JPEGImages/{name}.jpg", action


def of_page(kind: ProblemKind, name: str, action: Action = "left out") -> Expected:
    return kind, f"Annotations/{name}.xml", action


Plant = Callable[[VocSet, str], Expected]
DEFECTS: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    DEFECTS[plant.__name__.replace("_", " ")] = plant
    return plant


@defect
def missing_file(photos: VocSet, name: str) -> Expected:
    photos.enlist("train", "ghost")
    return "missing-file", "ImageSets/Main/train.txt", "left out"


@defect
def truncated_image(photos: VocSet, name: str) -> Expected:
    photos.cut_image(name)
    return of_image("truncated-image", name)


@defect
def unreadable_image(photos: VocSet, name: str) -> Expected:
    whole = photos.image(name).read_bytes()
    table = whole.find(b"\xff\xc4") + 5  # the lengths of a Huffman code that cannot be
    photos.image(name).write_bytes(whole[:table] + b"\xff" * 16 + whole[table + 16 :])
    return of_image("unreadable-image", name)


@defect
def decompression_bomb(photos: VocSet, name: str) -> Expected:
    write_png_bomb(photos.image(name))
    return of_image("image-bomb", name)


@defect
def non_image(photos: VocSet, name: str) -> Expected:
    photos.image(name).write_text("<html>404 Not Found</html>")
    return of_image("not-an-image", name)


def page_defect(title: str, text: str, kind: ProblemKind) -> None:
    def plant(photos: VocSet, name: str) -> Expected:
        photos.page(name).write_text(text)
        return of_page(kind, name)

    DEFECTS[title] = plant


page_defect("xml bomb", BILLION_LAUGHS, "xml-bomb")
page_defect("external entity", EXTERNAL_ENTITY, "xml-external-entity")
page_defect("torn page", "<annotation><object>", "unreadable-annotation")


@defect
def path_that_leaves(photos: VocSet, name: str) -> Expected:
    photos.change_page(name, "filename", "../../secret.jpg")
    return of_page("path-escape", name)


def box_defect(title: str, box: tuple[object, ...], kind: ProblemKind, action: Action) -> None:
    def plant(photos: VocSet, name: str) -> Expected:
        for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
            photos.change_page(name, f"object/bndbox/{side}", str(value))
        return of_page(kind, name, action)

    DEFECTS[title] = plant


# The images are 224 x 224.
box_defect("box of no area", (50, 50, 50, 90), "box-empty", "left out")
box_defect("box that is not a number", ("nan", 50, 60, 90), "box-nan", "left out")
box_defect("box of words", ("left", "top", 60, 90), "box-malformed", "left out")
box_defect("box outside", (300, 300, 350, 350), "box-outside", "left out")
box_defect("box that reaches out", (150, 150, 240, 200), "box-overhang", "repaired")
box_defect("box larger than the image", (-50, -50, 500, 500), "box-larger-than-image", "repaired")
box_defect("swapped corners", (90, 90, 50, 50), "box-swapped", "repaired")


@defect
def unknown_class(photos: VocSet, name: str) -> Expected:
    photos.change_page(name, "object/name", "cofee")
    return of_page("unknown-class", name)


@defect
def empty_annotation(photos: VocSet, name: str) -> Expected:
    tree = ET.parse(photos.page(name))
    for item in tree.findall("object"):
        tree.getroot().remove(item)
    tree.write(photos.page(name))
    return of_page("empty-annotation", name, "noted")


@defect
def image_without_annotation(photos: VocSet, name: str) -> Expected:
    photos.page(name).unlink()
    return of_image("image-without-annotation", name)


@defect
def annotation_without_image(photos: VocSet, name: str) -> Expected:
    photos.image(name).unlink()
    return of_page("annotation-without-image", name)


@defect
def listed_twice(photos: VocSet, name: str) -> Expected:
    photos.enlist("train", name)
    return of_page("duplicate-image", name)


@defect
def listed_in_train_and_val(photos: VocSet, name: str) -> Expected:
    photos.enlist("val", name)
    return of_page("leak", name)


@defect
def identical_in_train_and_val(photos: VocSet, name: str) -> Expected:
    hidden = photos.names("val")[0]
    shutil.copyfile(photos.image(name), photos.image(hidden))
    return of_image("leak", hidden)


@defect
def exif_rotation(photos: VocSet, name: str) -> Expected:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    with Pillow.open(photos.image(name)) as image:
        image.crop((0, 0, 224, 160)).save(photos.image(name), exif=exif)
    for side, value in {"width": 224, "height": 160}.items():
        photos.change_page(name, f"size/{side}", str(value))
    for side, value in {"xmin": 100, "ymin": 20, "xmax": 200, "ymax": 120}.items():
        photos.change_page(name, f"object/bndbox/{side}", str(value))
    return of_page("exif-rotation", name, "repaired")


def looked_at(root: Path, cache: Path) -> Source:
    return scan(open_source(root), workers=2, cache=cache)


def found(source: Source) -> set[Expected]:
    return {(problem.kind, problem.file, problem.action) for problem in source.problems}


def background(expected: Expected) -> Expected:
    """What is said too where the only object of an image is left out."""
    return "empty-annotation", expected[1], "noted"


@pytest.mark.parametrize("title", DEFECTS)
def test_defect_is_named_and_nothing_else_is(title: str, real: VocSet, tmp_path: Path) -> None:
    assert looked_at(real.root, tmp_path / "cache").problems == ()
    expected = DEFECTS[title](real, real.names("train")[3])
    source = looked_at(real.root, tmp_path / "cache")
    assert found(source) in ({expected}, {expected, background(expected)})
    unharmed = NUM_TRAIN + NUM_VAL - 1
    assert sum(map(len, source.splits.values())) in {unharmed, unharmed + 1}


def test_a_set_with_every_defect_is_reported_and_trained_on(
    real: VocSet, tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    names = real.names("train")
    expected = {plant(real, names[i]) for i, plant in enumerate(DEFECTS.values())}
    assert len(expected) == len(DEFECTS)
    before = {file: file.read_bytes() for file in real.root.rglob("*") if file.is_file()}
    out = tmp_path / "run"
    run(real.root, out, steps=2)
    report = json.loads((out / "data_report.json").read_text())
    reported = {(p["kind"], p["file"], p["action"]) for p in report["problems"]}
    assert expected <= reported <= expected | set(map(background, expected))
    nan = next(p for p in report["problems"] if p["kind"] == "box-nan")
    assert (nan["at"].split()[:2], nan["value"]) == (["object", "1"], "[nan, 50, 60, 90]")
    log = (out / "train.log").read_text()
    assert all(f" {kind} " in log for kind, _, _ in expected)
    assert json.loads((out / "summary.json").read_text())["steps"] == 2
    assert before == {file: file.read_bytes() for file in real.root.rglob("*") if file.is_file()}


def test_strict_refuses_and_names_the_first(
    real: VocSet, tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    truncated_image(real, real.names("train")[3])
    with pytest.raises(DataError, match=r"1 problems, and data\.strict=true; the first: JPEGImages/"):
        run(real.root, tmp_path / "run", steps=2, data={"strict": True})
    assert not (tmp_path / "run").exists()


def test_zero_training_images(real: VocSet, tmp_path: Path) -> None:
    for name in real.names("train"):
        truncated_image(real, name)
    with pytest.raises(DataError, match="has no usable training image") as caught:
        looked_at(real.root, tmp_path / "cache")
    assert "truncated" in caught.value.advice
