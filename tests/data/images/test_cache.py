from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.core.types import Image, Target
from boxcrew.data.detection.records import Record
from boxcrew.data.images import cache as image_cache
from boxcrew.data.images.cache import ImageCache
from boxcrew.data.images.reading import read_image
from boxcrew.data.loading.workers import Workers, fetch_all

SIDES = ((64, 48), (33, 17), (80, 80))
BYTES = tuple(3 * width * height for width, height in SIDES)
PLENTY = 10 * sum(BYTES)

# The tests are about what is kept, not speed.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Files:
    """Reads, and writes down in a file what it was asked for: other processes may ask too."""

    def __init__(self, folder: Path) -> None:
        self.records: list[Record] = []
        self._asked = folder / "asked"
        self._asked.touch()
        for index, (width, height) in enumerate(SIDES):
            rng = np.random.default_rng(index)
            file = folder / f"{index}.jpg"
            cv2.imwrite(str(file), rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
            target = Target.of([], [])
            self.records.append(Record(key=str(index), path=file, width=width, height=height, target=target))

    @property
    def asked(self) -> list[str]:
        return self._asked.read_text().split()

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        with self._asked.open("a") as file:
            file.write(f"{record.key}/{reduction}\n")
        assert record.path is not None
        return read_image(record.path, reduction=reduction)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_each_image_is_read_once_and_is_always_the_same(files: Files) -> None:
    cache = ImageCache(files, files.records, budget=PLENTY)
    for _ in range(3):
        for record in files.records:
            assert record.path is not None
            assert np.array_equal(cache.read(record), read_image(record.path))
    assert files.asked == ["0/1", "1/1", "2/1"]
    assert cache.used_bytes == sum(BYTES)


def test_reductions_are_kept_apart(files: Files) -> None:
    cache = ImageCache(files, files.records, budget=PLENTY)
    record = files.records[0]
    assert record.path is not None
    for reduction in (2, 1, 2, 4, 1):
        image = cache.read(record, reduction=reduction)
        assert np.array_equal(image, read_image(record.path, reduction=reduction))
    assert files.asked == ["0/2", "0/1", "0/4"]


def test_what_is_read_whole_whatever_the_reduction_is_kept_once(tmp_path: Path, files: Files) -> None:
    record = files.records[0]
    assert record.path is not None
    whole = read_image(record.path)
    png = replace(record, path=tmp_path / "0.png")
    assert png.path is not None
    cv2.imwrite(str(png.path), whole[..., ::-1])
    cache = ImageCache(files, [png], budget=PLENTY)
    for reduction in (4, 2, 1, 4, 2, 1):
        assert np.array_equal(cache.read(png, reduction=reduction), whole)
    assert files.asked == ["0/4", "0/2"]
    assert cache.used_bytes == BYTES[0]


def test_a_lock_that_is_never_given_back_holds_up_nobody_for_ever(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ImageCache(files, files.records, budget=PLENTY)
    kept = cache.read(files.records[0]).copy()
    monkeypatch.setattr(image_cache, "LOCK_SECONDS", 0.01)
    with cache._index.locked():
        assert np.array_equal(cache.read(files.records[0]), kept)
        cache.read(files.records[1])
    assert files.asked == ["0/1", "0/1", "1/1"]


def test_what_exceeds_the_budget_is_read_each_time(files: Files) -> None:
    budget = BYTES[0] + BYTES[1] + 100
    cache = ImageCache(files, files.records, budget=budget)
    for _ in range(2):
        for record in (files.records[0], files.records[2], files.records[1]):
            cache.read(record)
    assert files.asked == ["0/1", "2/1", "1/1", "2/1"]
    assert cache.used_bytes == BYTES[0] + BYTES[1]
    assert cache.used_bytes <= budget


def test_kept_pixels_cannot_be_changed_by_those_who_get_them(files: Files) -> None:
    cache = ImageCache(files, files.records, budget=PLENTY)
    first = cache.read(files.records[0])
    first[:] = 0  # what was just read is the reader's own
    again = cache.read(files.records[0])
    assert again.any()
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_processes_share_what_any_of_them_has_read(files: Files, num_workers: int) -> None:
    cache = ImageCache(files, files.records, budget=PLENTY)

    def total(index: int) -> int:
        return int(cache.read(files.records[index]).sum(dtype=np.int64))

    workers = Workers(num=num_workers, prefetch=1)
    once = list(fetch_all(total, [0, 1, 2], workers))
    assert sorted(files.asked) == ["0/1", "1/1", "2/1"]
    for _ in range(2):  # other processes than those that have read
        assert list(fetch_all(total, [2, 1, 0], workers)) == once[::-1]
    assert [total(index) for index in range(3)] == once
    assert len(files.asked) == 3


def test_an_image_that_cannot_be_read_is_tried_again(files: Files) -> None:
    cache = ImageCache(files, files.records, budget=PLENTY)
    record = files.records[0]
    assert isinstance(record.path, Path)
    whole = record.path.read_bytes()
    record.path.unlink()
    with pytest.raises(DataError):
        cache.read(record)
    record.path.write_bytes(whole)
    assert cache.read(record).shape == (48, 64, 3)


def test_records_it_does_not_know_are_read_through(files: Files) -> None:
    cache = ImageCache(files, files.records[:1], budget=PLENTY)
    for _ in range(2):
        cache.read(files.records[1])
    assert files.asked == ["1/1", "1/1"]
    assert cache.used_bytes == 0


def test_a_process_that_is_not_forked_gets_the_reader_alone(files: Files) -> None:
    cache = ImageCache(files, files.records, budget=PLENTY)
    assert isinstance(pickle.loads(pickle.dumps(cache)), Files)
