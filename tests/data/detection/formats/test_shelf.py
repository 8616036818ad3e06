from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.detection.source import SPLITS, Source, open_source
from boxcrew.data.embedded.shelf import scene as scene_module
from boxcrew.data.embedded.shelf.scene import draw_scene


@pytest.fixture(scope="module")
def shelf() -> Source:
    return open_source("shelf")


def test_it_is_opened_by_its_name(shelf: Source) -> None:
    assert isinstance(shelf, ShelfSource)
    assert {split: len(shelf.split(split)) for split in SPLITS} == {"train": 480, "val": 160, "test": 160}
    assert shelf.problems == ()


def test_no_path_is_detected_as_it(tmp_path: Path) -> None:
    assert not ShelfSource.detect(tmp_path)
    with pytest.raises(DataError) as raised:
        open_source(tmp_path)
    assert "shelf: its name" in raised.value.advice


def test_opening_paints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("painted while opening")

    monkeypatch.setattr(scene_module, "paint_surfaces", refuse)
    monkeypatch.setattr(ShelfSource, "num_images", {"train": 3})
    assert len(ShelfSource.open(Path("shelf")).split("train")) == 3


def test_the_data_do_not_depend_on_the_seed_of_a_run(shelf: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShelfSource, "num_images", {"val": 20})
    other = ShelfSource.open(Path("shelf"), seed=77)
    for first, second in zip(shelf.split("val"), other.split("val"), strict=False):
        assert first.key == second.key
        np.testing.assert_array_equal(first.target.boxes, second.target.boxes)


def test_reading_a_record_draws_its_image(shelf: Source) -> None:
    record = shelf.split("test")[7]
    assert record.key == "shelf/test/0007"
    assert record.path is None
    image, target = draw_scene(seed=ShelfSource.seed, split="test", index=7)
    np.testing.assert_array_equal(shelf.read(record), image)
    np.testing.assert_array_equal(record.target.boxes, target.boxes)
    assert image.shape == (record.height, record.width, 3)


def test_keys_are_unique_and_splits_differ(shelf: Source) -> None:
    records = [record for split in SPLITS for record in shelf.split(split)]
    assert len({record.key for record in records}) == len(records)
    assert len({record.target.boxes.tobytes() for record in records}) == len(records)


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_is_balanced_and_of_the_promised_sizes(shelf: Source, split: str) -> None:
    targets = [record.target for record in shelf.split(split)]
    counts = np.bincount(np.concatenate([target.labels for target in targets]), minlength=8)
    assert len(counts) == len(shelf.classes)
    assert counts.min() > 0.75 * counts.mean()
    assert counts.max() < 1.3 * counts.mean()
    boxes = np.concatenate([target.boxes for target in targets])
    longer = (boxes[:, 2:] - boxes[:, :2]).max(axis=1)
    assert longer.min() >= 16
    assert longer.max() <= 160
    assert 0.01 < np.mean(longer <= 24) < 0.1
