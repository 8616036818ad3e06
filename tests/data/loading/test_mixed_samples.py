"""Mosaics, pasted objects and blends in the stream of batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import cv2
import numpy as np
import pytest
import torch

from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Batch, Floats, Target
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import ImageReader, Source
from boxcrew.data.images.cache import ImageCache
from boxcrew.data.loading.detection_samples import DetectionSamples
from boxcrew.data.loading.loader import TrainLoader
from boxcrew.data.loading.order import SampleOrder
from boxcrew.data.loading.workers import Workers
from boxcrew.data.transforms.mosaic import Mixing
from boxcrew.data.transforms.pipeline import TransformsConfig, train_pipeline

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

NUM = 9
TRANSFORMS = TransformsConfig(expand=1, crop=False, jitter=0.2)
EVERY = Mixing(mosaic=0.6, copy_paste=0.3, mixup=0.4)
STEPS = 6
SIZE = InputSize((64,))


class Squares(Source):
    """Images with a gray level of their own, and an object of a class of its own in the middle."""

    format = "squares"
    expects = "squares"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir()

    @classmethod
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        records = []
        for index in range(NUM):
            width, height = 60 + 7 * index, 80 - 3 * index
            image = np.full((height, width, 3), 10 + 20 * index, dtype=np.uint8)
            image[20:40, 15:45] = 255 - index
            file = path / f"{index}.png"
            cv2.imwrite(str(file), image)
            target = Target.of([[15, 20, 45, 40]], [index])
            records.append(Record(key=file.name, path=file, width=width, height=height, target=target))
        return cls(root=path, classes=tuple("abcdefghi"), splits={"train": tuple(records)})


@pytest.fixture
def source(tmp_path: Path) -> Squares:
    return Squares.open(tmp_path)


def whole(record: Record) -> Floats:
    return np.array([[0, 0, record.width, record.height]], dtype=np.float32)


def batches(
    source: Source,
    mixing: Mixing | None = EVERY,
    *,
    images: ImageReader | None = None,
    size: InputSize = SIZE,
    start: int = 0,
    workers: int = 0,
    positions: Sequence[int] | None = None,
    records: slice = slice(None),
    **options: Any,
) -> list[Batch]:
    chosen = source.split("train")[records]
    pipeline = train_pipeline(TRANSFORMS, size)
    samples = DetectionSamples(images or source, chosen, pipeline, mixing=mixing, **options)
    order = SampleOrder(len(chosen), 3)
    loader = TrainLoader(samples, order, batch=4, workers=Workers(num=workers), positions=positions)
    return list(loader.batches(start, STEPS - start))


def same(first: Batch, second: Batch) -> bool:
    return (
        first.keys == second.keys
        and first.skipped == second.skipped
        and torch.equal(first.inputs, second.inputs)
        and torch.equal(first.draws, second.draws)
        and all(torch.equal(first.targets[name], second.targets[name]) for name in first.targets)
    )


def all_same(first: Sequence[Batch], second: Sequence[Batch]) -> bool:
    return all(same(a, b) for a, b in zip(first, second, strict=True))


def num_objects(batch: Batch) -> list[int]:
    return (batch.targets["labels"] >= 0).sum(dim=1).tolist()


def test_the_stream_does_not_depend_on_workers_cache_or_start(source: Squares) -> None:
    alone = batches(source)
    assert all_same(alone, batches(source, workers=2))
    assert all_same(alone[4:], batches(source, start=4))
    cache = ImageCache(source, source.split("train"), budget=10**7)
    for _ in range(2):  # the second time from memory
        assert all_same(alone, batches(source, images=cache, workers=1))


def test_a_share_has_the_samples_of_the_full_step(source: Squares) -> None:
    shares = [batches(source, positions=positions) for positions in ([1], [0, 2, 3])]
    for full, *parts in zip(batches(source), *shares, strict=True):
        assert torch.equal(full.inputs[[1, 0, 2, 3]], torch.cat([part.inputs for part in parts]))
        counts = num_objects(full)
        assert [counts[1], counts[0], *counts[2:]] == [num for part in parts for num in num_objects(part)]


def test_samples_that_are_not_mixed_are_those_of_a_run_without_mixing(source: Squares) -> None:
    plain, some = batches(source, None), batches(source, Mixing(mosaic=0.3, mixup=0.2))
    unchanged = [
        torch.equal(a, b)
        for first, second in zip(plain, some, strict=True)
        for a, b in zip(first.inputs, second.inputs, strict=True)
    ]
    assert 4 < sum(unchanged) < 22
    assert all_same(plain, batches(source, Mixing(mosaic=0, mixup=0)))


def test_mixing_ends_after_its_steps(source: Squares) -> None:
    mixed, plain = batches(source), batches(source, None)
    ending = batches(source, mixed_steps=4)
    assert all_same(ending[:4], mixed[:4])
    assert all_same(ending[4:], plain[4:])
    assert all_same(batches(source, mixed_steps=0), plain)


def test_a_mosaic_has_objects_of_other_images(source: Squares) -> None:
    labels = set()
    for batch in batches(source, Mixing(mosaic=1, mixup=0)):
        for key, found in zip(batch.keys, batch.targets["labels"].tolist(), strict=True):
            real = [label for label in found if label >= 0]
            assert len(real) <= 4
            labels |= {label - int(key[0]) for label in real}
    assert len(labels) > 8
    blended = batches(source, Mixing(mosaic=1, mixup=1))
    assert max(num for batch in blended for num in num_objects(batch)) > 4


@pytest.mark.parametrize("mixing", [Mixing(mosaic=1, mixup=0), Mixing(mosaic=0, mixup=1)])
def test_an_unreadable_image_is_reported_in_its_turn_and_never_mixed_in(
    source: Squares, mixing: Mixing
) -> None:
    path = source.split("train")[5].path
    assert isinstance(path, Path)
    path.write_bytes(b"no image")
    read = batches(source, mixing)
    assert all_same(read, batches(source, mixing, workers=1))
    for batch in read:
        assert not (batch.targets["labels"] == 5).any()
        assert len(batch) == 4 - len(batch.skipped)
        assert all("5.png" in message for message in batch.skipped)
        # No hole is left in a mosaic, and no blend is darker for it.
        assert (batch.inputs.float().mean(dim=(1, 2, 3)) > 8).all()
    turns = sum(SampleOrder(NUM, 3).samples(0, 4 * STEPS)[1] == 5)
    assert sum(len(batch.skipped) for batch in read) == turns


def test_a_single_image_is_mixed_with_itself(source: Squares) -> None:
    for batch in batches(source, Mixing(mosaic=1, mixup=1), records=slice(2, 3)):
        assert set(batch.targets["labels"].flatten().tolist()) <= {-1, 2}


@pytest.mark.parametrize("size", [InputSize((64, 96)), InputSize((64, 96), 160)], ids=str)
def test_all_samples_of_a_step_have_its_size(source: Squares, size: InputSize) -> None:
    """Also where an image is mixed into a step of images that are all lower, or narrower."""
    mixed = batches(source, Mixing(mosaic=0.5, mixup=1), size=size)
    plain = batches(source, None, size=size)
    assert len({batch.inputs.shape for batch in mixed}) > 1
    for batch, other in zip(mixed, plain, strict=True):
        assert batch.inputs.shape == other.inputs.shape
        boxes = batch.targets["boxes"][batch.targets["labels"] >= 0]
        assert (boxes[:, 2:] <= torch.tensor(batch.inputs.shape[:1:-1])).all()
        assert (boxes[:, 2:] - boxes[:, :2] >= 1).all()


def test_regions_of_all_images_come_along(source: Squares) -> None:
    mixing = Mixing(mosaic=1, mixup=0)
    for batch in batches(source, mixing, regions=whole):
        assert batch.extra["regions"].shape == (4, 4, 4)
        assert batch.extra["regions_valid"].all()
        areas = (batch.extra["regions"][..., 2:] - batch.extra["regions"][..., :2]).prod(dim=-1)
        assert (areas.sum(dim=1) <= 64 * 64).all(), "tiles do not overlap"
