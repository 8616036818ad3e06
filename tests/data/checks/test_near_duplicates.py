"""Altered copies of real images are found across splits; different images are not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

import cv2
import numpy as np
import pytest

from boxcrew.core.errors import DataError
from boxcrew.core.types import Image, Target
from boxcrew.data.checks import near_duplicates as module
from boxcrew.data.checks.near_duplicates import LIMIT, NearDuplicate, near_duplicates
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.formats import EmbeddedFormat
from boxcrew.data.images.reading import Header, read_header, read_image, write_image


class Folder(EmbeddedFormat, Source):
    """Images of folders named like splits, with nothing annotated."""

    format = "folder"

    @classmethod
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        splits = {}
        for split in ("train", "val", "test"):
            files = sorted((path / split).glob("*"))
            if files:
                splits[split] = tuple(_record(file, split) for file in files)
        return cls(root=path, classes=("thing",), splits=splits)


def _record(file: Path, split: str) -> Record:
    try:
        header = read_header(file)
    except DataError:
        header = Header(64, 64)
    return Record(
        key=f"{split}/{file.name}",
        path=file,
        width=header.width,
        height=header.height,
        target=Target.of([], []),
    )


def pairs_by_second(folder: Path) -> dict[str, NearDuplicate]:
    return {pair.second: pair for pair in near_duplicates(Folder.open(folder), workers=2)}


@pytest.fixture(scope="module")
def photos(shared_data: Path) -> list[Path]:
    """Image files from four sets, no two alike."""
    folders = (
        "groceries8_voc/JPEGImages",
        "bccd_voc/JPEGImages",
        "coco128_yolo/images/train2017",
        "fashion8_coco/images",
    )
    return [file for folder in folders for file in sorted((shared_data / folder).glob("*.jpg"))[:60:6]]


def _trimmed(image: Image) -> Image:
    height, width = image.shape[:2]
    return image[int(0.04 * height) : int(0.99 * height), int(0.02 * width) : int(0.97 * width)]


def _brighter(image: Image) -> Image:
    brighter: Image = np.clip(image.astype(np.float32) * 1.2 + 15, 0, 255).astype(np.uint8)
    return brighter


def _half(image: Image) -> Image:
    half: Image = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    return half


def _mirrored(image: Image) -> Image:
    return np.ascontiguousarray(image[:, ::-1])


ALTERATIONS: dict[str, Callable[[Image], Image]] = {
    "encoded anew": lambda image: image,
    "half": _half,
    "trimmed": _trimmed,
    "brighter": _brighter,
    "mirrored": _mirrored,
    "all": lambda image: _half(_brighter(_trimmed(_mirrored(image)))),
}


def test_splits_of_nothing_but_blank_images_have_no_duplicates(tmp_path: Path) -> None:
    for split, side in (("train", 40), ("val", 50)):
        (tmp_path / split).mkdir()
        write_image(tmp_path / split / "blank.png", np.zeros((side, side, 3), dtype=np.uint8))
    assert pairs_by_second(tmp_path) == {}


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_altered_copies_are_found(photos: list[Path], tmp_path: Path, alteration: str) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    for file in photos:
        shutil.copyfile(file, tmp_path / "train" / file.name)
    for file in photos[::2]:
        altered = ALTERATIONS[alteration](read_image(file))
        write_image(tmp_path / "val" / f"copy_{file.name}", altered, quality=60)
    pairs = pairs_by_second(tmp_path)
    assert {second: pair.first for second, pair in pairs.items()} == {
        f"val/copy_{file.name}": f"train/{file.name}" for file in photos[::2]
    }
    assert all(0 <= pair.distance <= LIMIT for pair in pairs.values())
    assert {(pair.first_split, pair.second_split) for pair in pairs.values()} == {("train", "val")}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("groceries8_voc", set()),
        ("coco128_yolo", set()),
        # Checked by eye: two frames of one smear each, and one street photo saved twice.
        ("bccd_voc", {("BloodImage_00386", "BloodImage_00391"), ("BloodImage_00038", "BloodImage_00037")}),
        ("fashion8_coco", {("0594", "0722")}),
    ],
)
def test_real_sets(shared_data: Path, data: str, expected: set[tuple[str, str]]) -> None:
    pairs = near_duplicates(open_source(shared_data / data), workers=2)
    assert {(Path(pair.first).stem, Path(pair.second).stem) for pair in pairs} == expected
    assert [pair.distance for pair in pairs] == sorted(pair.distance for pair in pairs)


def test_one_pair_for_an_image_and_the_nearest(photos: list[Path], tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        (tmp_path / split).mkdir()
    image = read_image(photos[0])
    write_image(tmp_path / "train" / "trimmed.jpg", _trimmed(image))
    write_image(tmp_path / "val" / "other.jpg", read_image(photos[-1]))
    write_image(tmp_path / "val" / "whole.png", image)
    write_image(tmp_path / "test" / "again.jpg", image)
    pairs = pairs_by_second(tmp_path)
    assert pairs["val/whole.png"].first == "train/trimmed.jpg"
    assert pairs["test/again.jpg"].first == "val/whole.png"
    assert len(pairs) == 2


def test_images_of_one_split_are_not_compared(photos: list[Path], tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for name in ("a", "b"):
        shutil.copyfile(photos[0], tmp_path / "train" / f"{name}.jpg")
    assert pairs_by_second(tmp_path) == {}


def test_plain_and_unreadable_images_are_passed_over(photos: list[Path], tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        write_image(tmp_path / split / "plain.png", np.full((90, 120, 3), 200, dtype=np.uint8))
        (tmp_path / split / "broken.jpg").write_bytes(b"\xff\xd8 not much of an image")
        (tmp_path / split / "gone.png").symlink_to(tmp_path / "nowhere.png")
        shutil.copyfile(photos[0], tmp_path / split / "photo.jpg")
    assert set(pairs_by_second(tmp_path)) == {"val/photo.jpg"}


def test_small_blocks_give_the_same(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(shared_data / "bccd_voc")
    at_once = near_duplicates(source, workers=1)
    monkeypatch.setattr(module, "_BLOCK", 7)
    assert near_duplicates(source, workers=3) == at_once


def test_drawn_sets_and_progress() -> None:
    source = open_source("shelf")
    few = {name: records[:6] for name, records in source.splits.items()}
    source.splits = {**few, "val": (*few["val"], few["train"][2])}
    calls: list[tuple[int, int]] = []
    pairs = near_duplicates(source, workers=2, progress=lambda *counts: calls.append(counts))
    assert [(pair.first, pair.second_split, round(pair.distance, 3)) for pair in pairs] == [
        (few["train"][2].key, "val", 0)
    ]
    assert calls[-1] == (19, 19)
