"""The one cause of many problems is found and stated, with the setting that reads the set as it was meant."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from boxcrew.core.config import parse_words
from boxcrew.data.checks.box_reading import ORDERS, UNITS, to_corners, to_numbers
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import Problem
from boxcrew.data.config import BoxOptions, BoxOrder
from boxcrew.data.detection.source import Source, open_source
from tests.helpers.misread import CLASSES, SIZES, DrawnImage, boxes_of, draw_images, write_set

FORMATS = ("yolo", "voc", "coco")
NATIVE = {"yolo": ("fractions", "cxcywh"), "voc": ("pixels", "xyxy"), "coco": ("pixels", "xywh")}
READINGS = [
    (name, unit, order)
    for name, unit, order in itertools.product(FORMATS, UNITS, ORDERS)
    # In fractions and percent, swapped axes cannot be noticed.
    if (unit, order) != NATIVE[name] and (unit == "pixels" or order in {"xyxy", "xywh", "cxcywh"})
]
UNNOTICED = {("coco", "percent", "xyxy"), ("coco", "percent", "cxcywh")}
"""Read as pixels, these boxes are inside their images, and reach beyond 100."""


def causes(source: Source) -> list[Problem]:
    return [problem for problem in source.problems if problem.kind == "cause"]


def options_of(cause: Problem) -> BoxOptions:
    """Return the options that a cause recommends, as the command line reads them."""
    _, tree = parse_words(cause.value.split())
    return BoxOptions.of(tree["data"])


def assert_same(source: Source, images: Sequence[DrawnImage], *, tolerance: float = 0.01) -> None:
    for (boxes, labels), image in zip(boxes_of(source), images, strict=True):
        np.testing.assert_allclose(boxes, image.boxes, rtol=0, atol=tolerance)
        assert labels == list(image.labels)


@pytest.mark.parametrize(("format", "unit", "order"), READINGS)
def test_another_unit_or_order_is_named_and_its_setting_reads_the_boxes(
    format: str, unit: str, order: str, tmp_path: Path
) -> None:
    images = draw_images()
    folder = write_set(tmp_path / "set", images, format=format, unit=unit, order=order)
    found = causes(open_source(folder))
    if (format, unit, order) in UNNOTICED:
        assert not found
        return
    (cause,) = found
    native = NATIVE[format]
    assert options_of(cause) == BoxOptions.of(
        ({"coordinates": unit} if unit != native[0] else {})
        | ({"boxes": order} if order != native[1] else {})
    )
    source = open_source(folder, options=options_of(cause))
    assert {problem.kind for problem in source.problems} == {"made-split"}
    assert_same(source, images)


def test_the_sentence_comes_first_and_names_numbers_and_setting(tmp_path: Path) -> None:
    source = open_source(write_set(tmp_path / "set", draw_images(), format="yolo", unit="pixels"))
    first, *others = source.problems
    assert first.kind == "cause"
    assert first.action == "noted"
    assert first.message == (
        "80 of 80 boxes do not fit their images as fractions, but 80 would fit as pixels: "
        "data.coordinates=pixels"
    )
    assert sum(problem.kind == "box-outside" for problem in others) == 80


def test_fractions_read_as_pixels_are_called_tiny(tmp_path: Path) -> None:
    source = open_source(write_set(tmp_path / "set", draw_images(), format="voc", unit="fractions"))
    assert source.problems[0].message == (
        "80 of 80 boxes are no larger than a pixel, but 80 would fit as fractions: data.coordinates=fractions"
    )


def test_two_readings_that_the_boxes_do_not_tell_apart_are_both_named(tmp_path: Path) -> None:
    small: Box = (150.0, 100.0, 170.0, 120.0)
    images = [replace(image, boxes=(small,), labels=(0,)) for image in draw_images()]
    folder = write_set(tmp_path / "set", images, format="voc", order="cxcywh")
    (cause,) = causes(open_source(folder))
    assert cause.message.endswith("data.boxes=xywh (or data.boxes=cxcywh, if that looks right)")


def test_order_and_unit_are_both_described(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", draw_images(), format="yolo", unit="pixels", order="xyxy")
    assert causes(open_source(folder))[0].message == (
        "80 of 80 boxes do not fit their images as x, y of the center, width, height in fractions, but 80 "
        "would fit as x, y, x, y of two corners in pixels: data.boxes=xyxy data.coordinates=pixels"
    )


def test_a_cause_is_found_beside_random_damage(tmp_path: Path) -> None:
    images = draw_images(20)
    damaged = [replace(image, boxes=((5.0, 5.0, 5.0, 5.0), *image.boxes[1:])) for image in images[:6]]
    folder = write_set(tmp_path / "set", [*damaged, *images[6:]], format="yolo", unit="pixels")
    (cause,) = causes(open_source(folder))
    assert "100 of 100 boxes do not fit" in cause.message
    assert "but 94 would fit as pixels" in cause.message


def test_a_wrong_setting_is_corrected_too(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", draw_images(), format="yolo")
    (cause,) = causes(open_source(folder, options=BoxOptions(coordinates="percent")))
    assert cause.value == "data.coordinates=fractions"
    assert not causes(open_source(folder, options=options_of(cause)))


def test_boxes_drawn_before_an_exif_rotation_are_not_taken_for_swapped_axes(tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    images = [replace(image, stated=(0, 0)) for image in draw_images(sizes=[(320, 200)])]
    folder = write_set(tmp_path / "set", images, format="coco")
    for file in (folder / "images").iterdir():
        Pillow.new("L", (320, 200)).save(file, exif=exif)
    source = open_source(folder)
    assert (source.records[0].width, source.records[0].height) == (200, 320)
    assert any(problem.kind == "box-outside" for problem in source.problems)
    assert not causes(source)


@pytest.mark.parametrize("num", [1, 3])
def test_classes_numbered_from_one_are_noticed(num: int, tmp_path: Path) -> None:
    images = [replace(image, labels=tuple(n % num for n in image.labels)) for image in draw_images()]
    folder = write_set(tmp_path / "set", images, format="yolo", first=1)
    (folder / "classes.txt").write_text("\n".join(CLASSES[:num]))
    source = open_source(folder)
    (cause,) = causes(source)
    assert cause.value == "data.first_class=1"
    assert f"class ids 1 to {num}, but the {num} classes are numbered from 0" in cause.message
    assert "the others are one class off" in cause.message
    assert f"there is no class {num}; classes are 0 to {num - 1}" in " ".join(map(str, source.problems))
    meant = open_source(folder, options=options_of(cause))
    assert {problem.kind for problem in meant.problems} == {"made-split"}
    assert_same(meant, images)


def test_more_classes_than_names_are_counted(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", draw_images(), format="yolo")
    (folder / "classes.txt").write_text(CLASSES[0])
    (cause,) = causes(open_source(folder))
    assert (
        "of 80 boxes are left out, because the labels use more classes than the 1 that are" in cause.message
    )
    assert "(1, 2): list all of them" in cause.message
    assert cause.value == ""


def test_unlisted_names_are_a_cause_if_they_are_many(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", draw_images(), format="voc")
    (folder / "classes.txt").write_text(f"{CLASSES[0]}\n{CLASSES[1]}\n")
    (cause,) = causes(open_source(folder))
    assert "(cog): list all of them" in cause.message


def test_a_single_unknown_class_is_no_cause(tmp_path: Path) -> None:
    images = draw_images()
    images[0] = replace(images[0], labels=(7, *images[0].labels[1:]))
    assert not causes(open_source(write_set(tmp_path / "set", images, format="yolo")))


@pytest.mark.parametrize("format", ["voc", "coco"])
@pytest.mark.parametrize("factor", [0.25, 3])
def test_images_resized_after_annotation_are_noticed(format: str, factor: float, tmp_path: Path) -> None:
    images = draw_images()
    resized = [
        replace(image, size=(int(image.size[0] * factor), int(image.size[1] * factor)), stated=image.size)
        for image in images
    ]
    folder = write_set(tmp_path / "set", resized, format=format)
    source = open_source(folder)
    (cause,) = causes(source)
    assert "16 of 16 images were resized after they had been annotated" in cause.message
    assert cause.value == "data.rescale=true"
    assert sum(problem.kind == "size-mismatch" for problem in source.problems) == 16
    meant = open_source(folder, options=options_of(cause))
    assert {problem.kind for problem in meant.problems} == {"made-split"}
    for (boxes, _), image in zip(boxes_of(meant), resized, strict=True):
        scale = np.divide(image.size, image.stated or image.size)
        np.testing.assert_allclose(boxes, np.array(image.boxes) * np.tile(scale, 2), rtol=0, atol=0.01)


@pytest.mark.parametrize("format", ["voc", "coco"])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_stated_size_that_is_merely_wrong_is_no_cause(format: str, factor: float, tmp_path: Path) -> None:
    images = [
        replace(image, stated=(int(image.size[0] * factor), int(image.size[1] * factor)))
        for image in draw_images()
    ]
    source = open_source(write_set(tmp_path / "set", images, format=format))
    assert not causes(source)
    assert sum(problem.kind == "size-mismatch" for problem in source.problems) == 16


def damaged(box: Box, size: tuple[int, int], kind: int) -> Box:
    """Return a box with one of the faults that annotators make."""
    x0, y0, x1, y1 = box
    faults: list[Box] = [
        (x1, y0, x0, y1),
        (x0, y0, x0, y1),
        (x0 + 2 * size[0], y0, x1 + 2 * size[0], y1),
        (x0, y0, size[0] + 20.0, y1),
        (float("nan"), y0, x1, y1),
        (-30.0, y0, x1, y1),
    ]
    return faults[kind % len(faults)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_random_damage_has_no_cause(format: str, seed: int, share: float, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    images = [
        replace(
            image,
            boxes=tuple(
                damaged(box, image.size, int(draw.integers(6))) if draw.random() < share else box
                for box in image.boxes
            ),
        )
        for image in draw_images(seed=seed)
    ]
    source = open_source(write_set(tmp_path / "set", images, format=format))
    assert any(problem.kind.startswith("box-") for problem in source.problems)
    assert not causes(source)


@pytest.mark.parametrize("name", ["bccd_voc", "coco128_yolo", "fashion8_coco", "groceries8_voc"])
def test_real_sets_have_no_cause(name: str, shared_data: Path) -> None:
    assert not causes(open_source(shared_data / name))


@settings(max_examples=40, deadline=None)
@given(
    format=st.sampled_from(FORMATS),
    seed=st.integers(0, 10_000),
    num=st.integers(2, 8),
    boxes=st.integers(0, 8),
    sizes=st.lists(st.tuples(st.integers(16, 900), st.integers(16, 900)), min_size=1, max_size=3),
)
def test_a_clean_set_never_has_a_cause(
    format: str, seed: int, num: int, boxes: int, sizes: list[tuple[int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        images = draw_images(num, seed=seed, sizes=sizes, boxes=boxes)
        images.append(draw_images(1, seed=seed, sizes=SIZES)[0])  # a set needs a class
        source = open_source(write_set(Path(folder) / "set", images, format=format))
        assert {problem.kind for problem in source.problems} <= {"made-split", "empty-annotation"}


@given(
    order=st.sampled_from(ORDERS),
    numbers=st.lists(st.tuples(*[st.floats(-1e4, 1e4)] * 4), min_size=1, max_size=8),
)
def test_orders_are_inverses_of_each_other(
    order: BoxOrder, numbers: list[tuple[float, float, float, float]]
) -> None:
    boxes = np.array(numbers)
    np.testing.assert_allclose(to_corners(to_numbers(boxes, order), order), boxes, rtol=0, atol=1e-9)
