from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from boxcrew.data.embedded.shelf.layout import NO_LABEL
from boxcrew.data.embedded.shelf.scene import Light, draw_scene, make_scene, paint_item

HASHES = """
import hashlib
from boxcrew.data.embedded.shelf.scene import draw_scene
for index in (3, 0, 2, 1):
    image, target = draw_scene(seed=9, split="val", index=index)
    print(index, hashlib.sha256(image.tobytes() + target.boxes.tobytes()).hexdigest())
"""


def test_the_same_numbers_give_the_same_bits_in_any_process_and_order() -> None:
    done = subprocess.run([sys.executable, "-c", HASHES], capture_output=True, text=True, check=True)
    expected = dict(line.split() for line in done.stdout.splitlines())
    for index in range(4):
        image, target = draw_scene(seed=9, split="val", index=index)
        digest = hashlib.sha256(image.tobytes() + target.boxes.tobytes()).hexdigest()
        assert expected[str(index)] == digest


def test_images_are_rgb_bytes_of_the_wanted_size() -> None:
    for size in (200, 320, 500):
        image, _ = draw_scene(seed=1, split="train", index=4, size=size)
        assert image.shape == (size, size, 3)
        assert image.dtype == np.uint8
        assert image.std() > 10


def test_boxes_without_painting_are_the_boxes_of_the_image() -> None:
    for index in range(30):
        _, drawn = draw_scene(seed=2, split="test", index=index)
        planned = make_scene(seed=2, split="test", index=index).target
        np.testing.assert_array_equal(planned.boxes, drawn.boxes)
        np.testing.assert_array_equal(planned.labels, drawn.labels)


@pytest.mark.parametrize("change", [{"split": "val"}, {"seed": 8}, {"index": 1}])
def test_another_split_seed_or_index_is_another_image(change: dict[str, int | str]) -> None:
    first, _ = draw_scene(seed=7, split="train", index=0)
    wanted: dict[str, int | str] = {"seed": 7, "split": "train", "index": 0, **change}
    second, _ = draw_scene(**wanted)  # type: ignore[arg-type]  # mixed values
    assert np.abs(first.astype(int) - second).mean() > 5


def test_boxes_are_tight_on_the_painted_pixels() -> None:
    """Paints every item on black and on white: where both agree, the item hides what is behind it."""
    light = Light(x=0.5, y=-0.5, shadow=0.4, soft=0.05)
    for index in range(12):
        scene = make_scene(seed=4, split="train", index=index)
        owner = np.zeros((320, 320), dtype=int)
        for number, item in enumerate(scene.items):
            grounds = [np.full((320, 320, 3), ground, dtype=np.uint8) for ground in (0, 255)]
            for ground in grounds:
                paint_item(ground, item, np.random.default_rng(number), light)
            hides = grounds[1].astype(int) - grounds[0] < 128
            owner[hides.all(axis=2)] = number + 1
        products = [k for k, item in enumerate(scene.items) if item.label != NO_LABEL]
        for number, box in zip(products, scene.target.boxes, strict=True):
            rows, columns = np.nonzero(owner == number + 1)
            painted = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_allclose(box, painted, atol=1)
