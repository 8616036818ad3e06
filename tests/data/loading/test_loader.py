from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import cv2
import numpy as np
import pytest
import torch

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.core.types import Batch, Floats, Image, Target
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import ImageReader, Source
from boxcrew.data.images.cache import ImageCache
from boxcrew.data.loading.detection_samples import DetectionEvalBatch, DetectionSamples, eval_image_batches
from boxcrew.data.loading.loader import LoaderConfig, StepRequest, TrainLoader
from boxcrew.data.loading.order import SampleOrder, sample_rng
from boxcrew.data.loading.workers import Workers
from boxcrew.data.transforms.pipeline import TransformsConfig, eval_pipeline, train_pipeline

# The tests are about order and life, not speed.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

TRAIN = train_pipeline(TransformsConfig(), InputSize((48,)))
EVAL = eval_pipeline(TransformsConfig(resize="letterbox"), InputSize((64,)))


class Pictures(Source):
    """A few JPEG files drawn for a test."""

    format = "pictures"
    expects = "pictures"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir()

    @classmethod
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        records = []
        for index in range(7):
            rng = np.random.default_rng((seed, index))
            width, height = (int(side) for side in rng.integers(40, 90, 2))
            image = cv2.GaussianBlur(rng.integers(0, 256, (height, width, 3), dtype=np.uint8), (5, 5), 0)
            file = path / f"{index}.jpg"
            cv2.imwrite(str(file), image)
            boxes = [[2, 3, 30, 35], [10, 10, 20 + index, 25]][: 1 + index % 2]
            target = Target.of(boxes, range(len(boxes)))
            records.append(Record(key=file.name, path=file, width=width, height=height, target=target))
        return cls(root=path, classes=("a", "b"), splits={"train": tuple(records)})


@pytest.fixture
def source(tmp_path: Path) -> Pictures:
    return Pictures.open(tmp_path)


def train_loader(source: Source, *, batch: int = 4, seed: int = 0, num_workers: int = 0) -> TrainLoader:
    records = source.split("train")
    return loader_of(source, records, batch=batch, seed=seed, num_workers=num_workers)


def own_boxes(record: Record) -> Floats:
    """The full image, the objects themselves, and a corner, which many crops leave out."""
    full, corner = np.array([[[0, 0, record.width, record.height]], [[0, 0, 3, 3]]], dtype=np.float32)
    return np.concatenate((full, record.target.boxes, corner))


def loader_of(
    images: ImageReader, records: Sequence[Record], *, batch: int, seed: int = 0, num_workers: int = 0
) -> TrainLoader:
    samples = DetectionSamples(images, records, TRAIN, own_boxes)
    workers = Workers(num=num_workers, prefetch=2)
    return TrainLoader(samples, SampleOrder(len(records), seed), batch=batch, workers=workers)


def eval_batches(source: Source, *, batch: int = 3, num_workers: int = 0) -> list[DetectionEvalBatch]:
    samples = DetectionSamples(source, source.split("train"), EVAL)
    return list(eval_image_batches(samples, batch=batch, workers=Workers(num=num_workers)))


def keys_of(batches: Sequence[DetectionEvalBatch]) -> list[str]:
    return [record.key for batch in batches for record in batch.records]


def remove(source: Source, indices: Sequence[int]) -> None:
    for index in indices:
        path = source.split("train")[index].path
        assert isinstance(path, Path)
        path.unlink()


def same(first: Batch, second: Batch) -> bool:
    return (
        first.keys == second.keys
        and first.skipped == second.skipped
        and torch.equal(first.inputs, second.inputs)
        and first.inputs.stride() == second.inputs.stride()
        and torch.equal(first.draws, second.draws)
        and first.extra.keys() == second.extra.keys()
        and all(torch.equal(first.extra[name], second.extra[name]) for name in first.extra)
        and first.targets.keys() == second.targets.keys()
        and all(torch.equal(first.targets[name], second.targets[name]) for name in first.targets)
    )


@pytest.mark.parametrize("num_workers", [1, 3])
def test_any_number_of_workers_gives_the_same_stream(source: Pictures, num_workers: int) -> None:
    alone = list(train_loader(source).batches(0, 8))
    shared = list(train_loader(source, num_workers=num_workers).batches(0, 8))
    assert len(alone) == len(shared) == 8
    assert all(same(a, b) for a, b in zip(alone, shared, strict=True))


@pytest.mark.parametrize("budget", [0, 20_000, 10**7])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_cache_of_any_size_gives_the_same_stream(source: Pictures, num_workers: int, budget: int) -> None:
    plain = list(train_loader(source).batches(0, 8))
    records = source.split("train")
    cache = ImageCache(source, records, budget=budget)
    cached = loader_of(cache, records, batch=4, num_workers=num_workers)
    for _ in range(2):  # the second time from memory
        assert all(same(a, b) for a, b in zip(plain, cached.batches(0, 8), strict=True))
    assert cache.used_bytes <= budget


@pytest.mark.parametrize("num_workers", [0, 2])
def test_starting_at_a_step_gives_the_rest_of_the_stream(source: Pictures, num_workers: int) -> None:
    whole = list(train_loader(source).batches(0, 9))
    for start in (1, 5):
        rest = list(train_loader(source, num_workers=num_workers).batches(start, 9 - start))
        assert all(same(a, b) for a, b in zip(whole[start:], rest, strict=True))


def test_every_batch_is_full_and_each_epoch_a_permutation(source: Pictures) -> None:
    keys = [key for batch in train_loader(source, batch=3).batches(0, 7) for key in batch.keys]
    assert len(keys) == 21
    for epoch in range(3):
        assert sorted(keys[7 * epoch : 7 * epoch + 7]) == [f"{index}.jpg" for index in range(7)]


def test_a_set_smaller_than_the_batch_fills_it_with_several_epochs(source: Pictures) -> None:
    loader = loader_of(source, source.split("train")[:2], batch=5)
    first, second = loader.batches(0, 2)
    assert len(first) == len(second) == 5
    assert sorted(first.keys + second.keys) == ["0.jpg"] * 5 + ["1.jpg"] * 5
    pictures = [*first.inputs, *second.inputs]
    assert not any(torch.equal(a, b) for i, a in enumerate(pictures) for b in pictures[:i])


def test_the_seed_changes_order_and_augmentation(source: Pictures) -> None:
    first, other = (next(iter(train_loader(source, batch=7, seed=seed).batches())) for seed in (0, 1))
    assert first.keys != other.keys
    assert not torch.equal(first.inputs, other.inputs)


def test_batches_hold_what_the_network_wants(source: Pictures) -> None:
    batch = next(iter(train_loader(source, num_workers=1).batches()))
    assert batch.inputs.shape == (4, 3, 48, 48)
    assert batch.inputs.dtype == torch.uint8
    assert batch.inputs.is_contiguous(memory_format=torch.channels_last)
    assert batch.targets["boxes"].shape[:2] == batch.targets["labels"].shape
    real = batch.targets["boxes"][batch.targets["labels"] >= 0]
    assert len(real) > 0
    assert (real[:, 2:] - real[:, :2] >= 1).all()


def test_regions_move_with_the_objects(source: Pictures) -> None:
    """A region around an object is around it still; one of which nothing is left is not valid."""
    num_regions = {record.key: 2 + len(record.target) for record in source.split("train")}
    num_gone = 0
    for batch in train_loader(source, batch=7).batches(0, 12):
        regions, valid = batch.extra["regions"], batch.extra["regions_valid"]
        assert (regions[~valid] == 0).all()
        assert ((regions >= 0) & (regions <= 48)).all()
        assert (regions[valid][:, 2:] - regions[valid][:, :2] >= 1).all()
        assert valid[:, 0].all(), "something of the image is always visible"
        for row, key in enumerate(batch.keys):
            num_gone += int((~valid[row, : num_regions[key]]).sum())
            assert not valid[row, num_regions[key] :].any()
            for box, label in zip(batch.targets["boxes"][row], batch.targets["labels"][row], strict=True):
                if label >= 0:
                    assert valid[row, 1 + label]
                    torch.testing.assert_close(regions[row, 1 + label], box, rtol=0, atol=1e-3)
    assert num_gone > 0


def test_a_blank_share_has_regions_of_no_weight(source: Pictures) -> None:
    remove(source, range(7))
    samples = DetectionSamples(source, source.split("train"), TRAIN, own_boxes)
    (batch,) = TrainLoader(samples, SampleOrder(7, 0), batch=4, positions=[1]).batches(0, 1)
    assert batch.is_blank
    assert batch.draws.tolist() == [0, 0]
    assert batch.extra["regions"].shape == (2, 1, 4)
    assert not batch.extra["regions_valid"].any()


def test_without_regions_there_is_nothing_extra(source: Pictures) -> None:
    samples = DetectionSamples(source, source.split("train"), TRAIN)
    (batch,) = TrainLoader(samples, SampleOrder(7, 0), batch=4).batches(0, 1)
    assert batch.extra == {}
    assert same(replace(batch, extra={}), replace(next(train_loader(source).batches()), extra={}))


def test_evaluation_has_regions_where_they_appear(source: Pictures) -> None:
    samples = DetectionSamples(source, source.split("train"), EVAL, own_boxes)
    for batch in eval_image_batches(samples, batch=3):
        regions, valid = batch.extra["regions"], batch.extra["regions_valid"]
        for row, (view, record) in enumerate(zip(batch.views, batch.records, strict=True)):
            wanted = view.boxes(own_boxes(record))
            assert valid[row].sum() == len(wanted)
            np.testing.assert_allclose(regions[row, : len(wanted)], wanted, atol=1e-3)
    assert all(batch.extra == {} for batch in eval_batches(source))


class Sums:
    """Makes each sample from itself and the next of its step, which may be in another share."""

    noun = "sums"

    def make(self, request: StepRequest) -> Batch:
        following = (request.positions + 1) % len(request.indices)
        sums = request.indices[request.positions] + request.indices[following]
        keys = tuple(f"{request.seed} {request.step} {position}" for position in request.positions)
        return Batch(inputs=torch.from_numpy(sums), targets={}, keys=keys)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_sample_can_be_made_from_several_of_its_step_whatever_the_shares(num_workers: int) -> None:
    order, workers = SampleOrder(7, seed=3), Workers(num=num_workers)
    whole = list(TrainLoader(Sums(), order, batch=5, workers=workers).batches(0, 4))
    _, indices = order.samples(0, 20)
    assert whole[0].inputs.tolist() == [int(indices[i] + indices[(i + 1) % 5]) for i in range(5)]
    for positions in ([0, 1], [2, 3, 4], [4]):
        loader = TrainLoader(Sums(), order, batch=5, workers=workers, positions=positions)
        shares = list(loader.batches(0, 4))
        assert all(same(share, batch.select(positions)) for share, batch in zip(shares, whole, strict=True))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_vanished_file_is_left_out_and_named(source: Pictures, num_workers: int) -> None:
    before = list(train_loader(source, batch=7).batches(0, 2))
    remove(source, [3])
    after = list(train_loader(source, batch=7, num_workers=num_workers).batches(0, 2))
    for full, rest in zip(before, after, strict=True):
        assert rest.keys == tuple(key for key in full.keys if key != "3.jpg")
        kept = [row for row, key in enumerate(full.keys) if key != "3.jpg"]
        assert torch.equal(rest.inputs, full.inputs[kept])
        assert len(rest.skipped) == 1
        assert "3.jpg" in rest.skipped[0]


def test_an_image_of_another_size_than_annotated_is_left_out(source: Pictures) -> None:
    record = source.split("train")[2]
    cv2.imwrite(str(record.path), np.zeros((10, 20, 3), dtype=np.uint8))
    batch = next(iter(train_loader(source, batch=7).batches()))
    assert len(batch) == 6
    assert "2.jpg: is 20 x 10 pixels now" in batch.skipped[0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_of_which_nothing_is_left_is_an_error(source: Pictures, num_workers: int) -> None:
    remove(source, range(7))
    with pytest.raises(DataError, match=r"none of the 4 images.*\.jpg") as caught:
        list(train_loader(source, num_workers=num_workers).batches(0, 2))
    assert "\n" not in caught.value.message


def test_no_records_is_an_error(source: Pictures) -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        loader_of(source, (), batch=2)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_evaluation_sees_each_record_once_in_order(source: Pictures, num_workers: int) -> None:
    batches = eval_batches(source, num_workers=num_workers)
    assert keys_of(batches) == [f"{index}.jpg" for index in range(7)]
    assert keys_of(eval_batches(source, num_workers=num_workers)) == keys_of(batches)
    assert [len(batch) for batch in batches] == [3, 3, 1]
    for batch in batches:
        assert batch.inputs.shape == (len(batch), 3, 64, 64)
        for view, record in zip(batch.views, batch.records, strict=True):
            full = np.array([[0, 0, record.width, record.height]], dtype=np.float32)
            seen = view.boxes(full)
            assert (seen >= 0).all()
            assert (seen <= 64).all()
            assert np.allclose(view.inverse_boxes(seen), full, atol=1e-3)
            assert record.key == source.split("train")[int(record.key[0])].key


@pytest.mark.parametrize("gone", [[0, 1, 2], [6], [1, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5]])
def test_evaluation_names_what_it_cannot_read(source: Pictures, gone: list[int]) -> None:
    remove(source, gone)
    batches = eval_batches(source)
    assert keys_of(batches) == [f"{index}.jpg" for index in range(7) if index not in gone]
    assert all(len(batch) for batch in batches)
    skipped = [words for batch in batches for words in batch.skipped]
    assert len(skipped) == len(gone)
    assert all(f"{index}.jpg" in words for index, words in zip(gone, skipped, strict=True))


def test_nothing_to_evaluate_is_an_error(source: Pictures) -> None:
    remove(source, range(7))
    with pytest.raises(DataError, match=r"none of the 7 images.*0\.jpg"):
        eval_batches(source)


def test_records_and_files_are_not_changed(source: Pictures) -> None:
    records = source.split("train")
    boxes = [record.target.boxes.copy() for record in records]
    list(train_loader(source).batches(0, 4))
    eval_batches(source)
    assert all((record.target.boxes == old).all() for record, old in zip(records, boxes, strict=True))


@pytest.mark.parametrize(
    "wrong", [{"workers": -1}, {"workers": "many"}, {"prefetch": 0}, {"cache": "lots"}, {"cache": -1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"loader.{next(iter(wrong))}"):
        LoaderConfig.of(wrong)
    assert LoaderConfig.of({"workers": "2"}).workers == 2


@pytest.mark.parametrize(
    ("size", "settled"), [("2GiB", 2 << 30), ("500MB", 500 * 10**6), ("0", 0), (7, 7), ("auto", "auto")]
)
def test_the_cache_is_given_as_people_write_sizes(size: object, settled: object) -> None:
    config = LoaderConfig.of({"cache": size})
    assert config.cache == settled
    assert LoaderConfig.of(config.tree()) == config


def test_large_photos_are_read_smaller_and_look_the_same(tmp_path: Path) -> None:
    file = tmp_path / "large.jpg"
    colors = np.linspace(0, 255, 600 * 400 * 3).reshape(400, 600, 3).astype(np.uint8)
    cv2.imwrite(str(file), colors)
    target = Target.of([[100, 50, 400, 300]], [0])
    record = Record(key=file.name, path=file, width=600, height=400, target=target)
    asked: list[int] = []

    class Counting(Pictures):
        def read(self, record: Record, *, reduction: int = 1) -> Image:
            asked.append(reduction)
            return super().read(record, reduction=reduction)

    source = Counting(root=tmp_path, classes=("a",), splits={"train": (record,)})
    (batch,) = eval_image_batches(DetectionSamples(source, [record], EVAL), batch=1)
    assert asked == [8]
    image, _, view = EVAL(source.read(record), target, sample_rng(0, 0, 0))
    assert view == batch.views[0]
    drawn = batch.inputs[0].permute(1, 2, 0).numpy().astype(int)
    assert np.abs(drawn - image).mean() < 2


SEVERAL = train_pipeline(TransformsConfig(), InputSize((32, 64, 96), 160))


def several_sizes(
    source: Source, *, positions: Sequence[int] | None = None, num_workers: int = 0
) -> list[Batch]:
    samples = DetectionSamples(source, source.split("train"), SEVERAL, own_boxes)
    order, workers = SampleOrder(7, 3), Workers(num=num_workers)
    return list(TrainLoader(samples, order, batch=4, workers=workers, positions=positions).batches(0, 12))


def test_a_step_has_one_size_drawn_for_it_alone(source: Pictures) -> None:
    batches = several_sizes(source)
    assert len({batch.inputs.shape[-2:] for batch in batches}) > 3
    assert all(side % 32 == 0 and side <= 160 for batch in batches for side in batch.inputs.shape[-2:])
    assert all(same(a, b) for a, b in zip(batches, several_sizes(source, num_workers=2), strict=True))


def test_shares_of_a_step_have_the_size_of_the_full_step(source: Pictures) -> None:
    shares = [several_sizes(source, positions=positions) for positions in ([0], [1, 2, 3])]
    for full, *parts in zip(several_sizes(source), *shares, strict=True):
        assert torch.equal(full.inputs, torch.cat([part.inputs for part in parts]))


def test_an_evaluation_batches_inputs_of_the_same_size(source: Pictures) -> None:
    records = source.split("train")
    pipeline = eval_pipeline(TransformsConfig(), InputSize((64,), 96))
    batches = list(eval_image_batches(DetectionSamples(source, records, pipeline), batch=3))
    assert sorted(keys_of(batches)) == sorted(record.key for record in records)
    assert max(map(len, batches)) > 1
    for batch in batches:
        for image, record in zip(batch.inputs, batch.records, strict=True):
            alone, _, _ = pipeline(source.read(record), record.target, sample_rng(0, 0, 0))
            assert np.array_equal(image.permute(1, 2, 0).numpy(), alone)
