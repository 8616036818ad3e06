"""Drawing changes a copy, only where lines and tags are, and never leaves the image."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxcrew.core.types import Image
from boxcrew.data.images.drawing import class_color, draw_boxes, grid

CLASSES = ("phone", "watch", "a class with a very long name that fits nowhere")


def noise(width: int, height: int) -> Image:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_the_image_given_is_not_changed(shared_data: Path) -> None:
    file = next((shared_data / "fashion8_coco" / "images").rglob("*.jpg"))
    photo = cv2.cvtColor(cv2.imread(str(file)), cv2.COLOR_BGR2RGB)
    before = photo.copy()
    drawn = draw_boxes(photo, [[20, 60, 120, 200]], [0], CLASSES, [0.93])
    assert (photo == before).all()
    assert drawn.shape == photo.shape
    assert drawn.dtype == np.uint8
    assert (drawn != photo).any()


@pytest.mark.parametrize(("width", "height"), [(64, 64), (300, 200), (1200, 1600), (4000, 3000)])
def test_inside_and_far_outside_nothing_changes(width: int, height: int) -> None:
    image = noise(width, height)
    box = np.array([0.2 * width, 0.5 * height, 0.8 * width, 0.9 * height])
    drawn = draw_boxes(image, box[None], [0], CLASSES, [0.5])
    x0, y0, x1, y1 = np.rint(box).astype(int)
    line = max(1, round((width * height) ** 0.5 / 190))
    assert (
        drawn[y0 + line : y1 - line, x0 + line : x1 - line]
        == image[y0 + line : y1 - line, x0 + line : x1 - line]
    ).all()
    assert (drawn[y0:y1, x0 : x0 + line] == class_color(0)).all()
    assert (drawn[y1 - line : y1, x0:x1] == class_color(0)).all()
    assert (drawn[y1:] == image[y1:]).all()
    assert (drawn[:, :x0] == image[:, :x0]).all()


def test_the_tag_says_the_name_and_the_score() -> None:
    image = np.full((200, 300, 3), 128, dtype=np.uint8)
    box = [[50, 100, 250, 180]]
    texts = [
        draw_boxes(image, box, [0], names, score)[:100]
        for names, score in [
            (("phone",), None),
            (("phone",), [0.93]),
            (("phone",), [0.94]),
            (("plate",), None),
        ]
    ]
    for a, b in combinations(texts, 2):
        assert (a != b).any()
    dark = (texts[1].astype(int).sum(axis=2) < 150).sum()
    assert dark > 20  # letters on the tag


def test_line_width_grows_with_the_image() -> None:
    def width_of_line(side: int) -> int:
        image = np.zeros((side, side, 3), dtype=np.uint8)
        drawn = draw_boxes(image, [[side // 4, side // 4, side * 3 // 4, side * 3 // 4]], [1], CLASSES)
        return int((drawn[side // 2, : side // 2] == class_color(1)).all(axis=1).sum())

    assert width_of_line(64) == 1
    assert width_of_line(64) < width_of_line(640) < width_of_line(4000)


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(8, 300), st.integers(8, 300)),
    box=st.lists(st.floats(-50, 400, width=32), min_size=4, max_size=4),
    label=st.integers(0, 2),
)
def test_any_box_on_any_image(size: tuple[int, int], box: list[float], label: int) -> None:
    image = noise(*size)
    drawn = draw_boxes(image, [box], [label], CLASSES, [0.5])
    assert drawn.shape == image.shape
    assert (drawn == class_color(label)).all(axis=2).any()


@pytest.mark.parametrize("corner", [(0, 0), (280, 0), (0, 190), (280, 190)])
def test_the_whole_tag_is_inside_the_image(corner: tuple[int, int]) -> None:
    image = np.zeros((200, 300, 3), dtype=np.uint8)
    x, y = corner

    def tag_pixels(left: int, top: int) -> int:
        return int(
            (draw_boxes(image, [[left, top, left + 20, top + 10]], [0], CLASSES) > 0).any(axis=2).sum()
        )

    in_the_middle = tag_pixels(140, 100)
    assert tag_pixels(x, y) > 0.7 * in_the_middle  # at an edge it may cover a part of the frame


def test_tags_of_near_boxes_do_not_cover_each_other() -> None:
    image = np.zeros((200, 300, 3), dtype=np.uint8)
    one_box = draw_boxes(image, [[100, 60, 200, 160]], [0], CLASSES, [0.9])
    two_boxes = draw_boxes(image, [[100, 60, 200, 160], [102, 62, 202, 162]], [0, 0], CLASSES, [0.9, 0.8])
    tag = np.s_[40:60, 100:180]
    assert (one_box[tag] > 0).any()
    assert (one_box[tag] == two_boxes[tag]).all()


def test_no_boxes() -> None:
    image = noise(80, 60)
    drawn = draw_boxes(image, [], [], CLASSES)
    assert (drawn == image).all()
    assert drawn is not image


def test_the_best_detection_lies_on_top() -> None:
    image = np.zeros((100, 100, 3), dtype=np.uint8)
    box = [20, 40, 80, 90]
    for scores, top in (([0.9, 0.1], 0), ([0.1, 0.9], 1)):
        assert tuple(draw_boxes(image, [box, box], [0, 1], CLASSES, scores)[89, 50]) == class_color(top)


def test_eighty_classes_have_eighty_colors() -> None:
    assert len({class_color(label) for label in range(80)}) == 80


def test_the_first_eight_colors_differ_for_everyone() -> None:
    """Under full protanopia and deuteranopia (Viénot 1999, in linear RGB) and for full vision."""
    rgb = (np.array([class_color(label) for label in range(8)]) / 255) ** 2.2
    protan = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
    deutan = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    for matrix in (np.eye(3), protan, deutan):
        seen = np.clip(rgb @ matrix.T, 0, 1) ** (1 / 2.2)
        lab = cv2.cvtColor(seen[None].astype(np.float32), cv2.COLOR_RGB2LAB)[0]
        for a, b in combinations(lab, 2):
            assert np.linalg.norm(a - b) > 12  # CIE 1976: 2.3 is just noticeable


def test_a_sheet_of_equal_images_shows_them_unchanged() -> None:
    images = [noise(50, 40), noise(50, 40)[::-1], noise(50, 40)[:, ::-1]]
    sheet = grid(images, columns=2, gap=5)
    assert sheet.shape == (2 * 40 + 3 * 5, 2 * 50 + 3 * 5, 3)
    assert (sheet[5:45, 5:55] == images[0]).all()
    assert (sheet[5:45, 60:110] == images[1]).all()
    assert (sheet[50:90, 5:55] == images[2]).all()
    assert (sheet[50:90, 60:110] == 255).all()


def test_a_sheet_of_unequal_images_keeps_their_shape() -> None:
    red = np.zeros((100, 50, 3), dtype=np.uint8)
    red[..., 0] = 255
    sheet = grid([noise(100, 100), red, noise(100, 100)], columns=3, gap=0)
    assert sheet.shape == (100, 300, 3)
    is_red = (sheet[:, 100:200] == (255, 0, 0)).all(axis=2)
    assert is_red.sum() == 100 * 50
    assert is_red[:, 25:75].all()


def test_a_sheet_of_large_images_stays_small() -> None:
    assert grid([noise(4000, 3000)] * 2, columns=2, gap=10).shape == (480 + 20, 2 * 640 + 30, 3)
