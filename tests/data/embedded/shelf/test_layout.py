from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxcrew.core.boxes import iou
from boxcrew.data.embedded.shelf.layout import MIN_SIDE, MIN_VISIBLE, NO_LABEL, ShelfScene, lay_out


def scenes(count: int, *, seed: int = 5) -> list[ShelfScene]:
    return [lay_out(np.random.default_rng([seed, index]), 320) for index in range(count)]


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([224, 320, 480]))
def test_boxes_lie_in_the_image_and_keep_the_promised_sizes(seed: int, size: int) -> None:
    scene = lay_out(np.random.default_rng(seed), size)
    boxes = scene.target.boxes
    assert 1 <= len(boxes) <= 10
    assert boxes.min() >= 0
    assert boxes.max() <= size
    longer = (boxes[:, 2:] - boxes[:, :2]).max(axis=1)
    assert longer.min() >= MIN_SIDE
    assert longer.max() <= size / 2


def test_boxes_are_the_extents_of_what_is_seen() -> None:
    for scene in scenes(60):
        products = [k for k, item in enumerate(scene.items) if item.label != NO_LABEL]
        assert [scene.items[k].label for k in products] == scene.target.labels.tolist()
        for number, box in zip(products, scene.target.boxes, strict=True):
            rows, columns = np.nonzero(scene.owner == number + 1)
            assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_products_are_mostly_visible_and_some_are_partly_hidden() -> None:
    shares = []
    for scene in scenes(100):
        for number, item in enumerate(scene.items):
            if item.label != NO_LABEL:
                seen = np.count_nonzero(scene.owner == number + 1)
                shares.append(seen / np.count_nonzero(item.mask >= 128))
    assert min(shares) >= MIN_VISIBLE
    assert 0.1 < np.mean(np.array(shares) < 0.95) < 0.6


def test_two_of_a_class_never_overlap() -> None:
    for scene in scenes(100):
        boxes, labels = scene.target.boxes, scene.target.labels
        same = (labels[:, None] == labels[None, :]) & ~np.eye(len(labels), dtype=bool)
        assert iou(boxes, boxes)[same].sum() == 0


def test_scenes_vary() -> None:
    drawn = scenes(150)
    assert {scene.backdrop.kind for scene in drawn} == {"shelf", "table", "rail", "flat"}
    counts = np.array([len(scene.target) for scene in drawn])
    assert counts.min() <= 2
    assert counts.max() >= 9
    assert np.mean([any(item.label == NO_LABEL for item in scene.items) for scene in drawn]) > 0.6
    boxes = np.concatenate([scene.target.boxes for scene in drawn])
    longer = (boxes[:, 2:] - boxes[:, :2]).max(axis=1)
    assert 0.01 < np.mean(longer <= 24) < 0.1
    assert np.mean(longer > 100) > 0.05
    assert np.median(longer) == pytest.approx(75, abs=20)
