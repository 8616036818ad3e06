from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.data.detection.source import open_source
from boxcrew.data.examples.example_set import ExampleOptions, open_examples
from boxcrew.data.examples.formats.embedded import ProductScenes


def test_there_are_enough_of_every_class() -> None:
    scenes = ProductScenes.open(Path("products"))
    for split, records in scenes.splits.items():
        counts = np.bincount(np.concatenate([record.target.labels for record in records]))
        assert len(counts) == 8
        assert counts.min() > (200 if split == "train" else 40)


def test_they_are_the_objects_of_the_shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProductScenes, "num_images", {"train": 12})
    shelf = open_source("shelf")
    products = open_examples("products", ExampleOptions(seed=5))
    assert products.classes == shelf.classes
    assert products.shape == (32, 32, 3)
    part = products.split("train")
    records = {record.key: record for record in shelf.split("train")}
    for index in range(0, len(part), 9):
        key, number = part.key(index).split("#")
        record, place = records[key], int(number)
        assert record.target.labels[place] == part.labels[index]
        x0, y0, x1, y1 = record.target.boxes[place].round().astype(int)
        inside = shelf.read(record)[y0:y1, x0:x1].mean(axis=(0, 1))
        assert np.abs(part.fetch([index]).inputs[0, 3:29, 3:29].mean(axis=(0, 1)) - inside).max() < 10


def test_they_may_be_gray_and_of_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProductScenes, "num_images", {"train": 4})
    assert open_examples("products", ExampleOptions(shape=(8, 8, 1))).shape == (8, 8, 1)
