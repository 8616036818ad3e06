from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.types import Image, Target
from boxcrew.data.detection.records import Record
from boxcrew.data.examples.crops import CropList, ImageCrops, LazyCrops, crop_image, read_crops
from boxcrew.data.images.reading import read_image, write_image
from tests.helpers.made_examples import draw_blocks


class Reader:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        self.asked.append((record.key, reduction))
        assert record.path is not None
        return read_image(record.path, reduction=reduction)


def make_crops(
    folder: Path, name: str, boxes: list[list[int]], *, width: int = 400, height: int = 300
) -> ImageCrops:
    file = folder / name
    write_image(file, draw_blocks(len(name) + sum(name.encode()), width=width, height=height))
    return ImageCrops(
        record=Record(key=name, path=file, width=width, height=height, target=Target.of([], [])),
        boxes=np.array(boxes, dtype=np.int64),
        labels=np.arange(len(boxes)),
        keys=tuple(f"{name}#{index}" for index in range(len(boxes))),
    )


@pytest.mark.parametrize(
    ("boxes", "reduction"),
    [
        ([[0, 0, 400, 300]], 8),
        ([[0, 0, 400, 300], [10, 10, 100, 90]], 2),
        ([[0, 0, 400, 300], [0, 0, 31, 31]], 1),
        ([[0, 0, 400, 200]], 4),
    ],
)
def test_images_are_reduced_as_far_as_all_parts_allow(
    tmp_path: Path, boxes: list[list[int]], reduction: int
) -> None:
    image_crops = make_crops(tmp_path, "a.jpg", boxes)
    reader = Reader()
    pictures = crop_image(reader, image_crops, (32, 32, 3))
    assert reader.asked == [("a.jpg", reduction)]
    whole = read_image(tmp_path / "a.jpg").astype(int)
    for picture, (x0, y0, x1, y1) in zip(pictures, boxes, strict=True):
        expected = whole[y0:y1, x0:x1].mean(axis=(0, 1))
        assert picture.mean(axis=(0, 1)) == pytest.approx(expected, abs=4)


def test_an_image_is_read_once_for_all_of_its_parts(tmp_path: Path) -> None:
    images = [make_crops(tmp_path, f"{n}.png", [[0, 0, 50, 50], [40, 30, 90, 99]]) for n in range(3)]
    reader = Reader()
    part = LazyCrops(reader, images, (8, 8, 3), budget=10**6)
    first = part.fetch([3, 0, 2, 3])
    assert [key for key, _ in reader.asked] == ["1.png", "0.png"]
    assert part.key(3) == "1.png#1"
    assert np.array_equal(first.inputs[0], crop_image(Reader(), images[1], (8, 8, 3))[1])
    again = part.fetch([1, 2, 3])
    assert len(reader.asked) == 2
    assert np.array_equal(again.inputs[2], first.inputs[0])
    assert part.labels.tolist() == [0, 1, 0, 1, 0, 1]


def test_without_a_budget_nothing_is_kept(tmp_path: Path) -> None:
    reader = Reader()
    part = LazyCrops(reader, [make_crops(tmp_path, "a.png", [[0, 0, 9, 9]])], (8, 8, 1), budget=0)
    assert part.cached_bytes == 0
    for _ in range(2):
        assert part.fetch([0]).inputs.shape == (1, 8, 8, 1)
    assert len(reader.asked) == 2


def test_what_cannot_be_read_at_once_is_told(tmp_path: Path) -> None:
    images = [make_crops(tmp_path, f"{n}.png", [[0, 0, 50, 50], [40, 30, 90, 99]]) for n in range(3)]
    (tmp_path / "1.png").unlink()
    examples, skipped = read_crops(Reader(), images, (8, 8, 3), workers=2)
    assert len(skipped) == 1
    assert "1.png" in skipped[0]
    assert [examples.key(index) for index in range(len(examples))] == [
        "0.png#0",
        "0.png#1",
        "2.png#0",
        "2.png#1",
    ]
    assert np.array_equal(examples.fetch([2, 3]).inputs, crop_image(Reader(), images[2], (8, 8, 3)))


def test_parts_of_classes_that_are_left_out(tmp_path: Path) -> None:
    image_crops = make_crops(tmp_path, "a.png", [[0, 0, 9, 9], [0, 0, 20, 20], [0, 0, 30, 30]])
    crops = CropList([image_crops])
    (left,) = crops.select(np.array([True, False, True])).with_labels(np.array([1, 0]))
    assert (left.labels.tolist(), left.keys) == ([1, 0], ("a.png#0", "a.png#2"))
    assert left.boxes.tolist() == [[0, 0, 9, 9], [0, 0, 30, 30]]
    assert crops.select(np.zeros(3, dtype=np.bool_)) == []
