"""Batches for training and evaluation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import ByteSize, Field
from torch import Tensor

from boxcrew.core.config import Config
from boxcrew.core.errors import DataError
from boxcrew.core.types import Batch, Image, Sample, Target
from boxcrew.data.detection.source import ImageReader, Record
from boxcrew.data.loading.collate import collate, stack_images
from boxcrew.data.loading.order import SampleOrder, sample_rng
from boxcrew.data.loading.workers import Workers, fetch_all
from boxcrew.data.transforms.pipeline import Pipeline
from boxcrew.data.transforms.view import View


class LoaderConfig(Config):
    """Who makes the batches. `auto` is settled by the plan, which knows the machine."""

    group: ClassVar[str] = "loader"

    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    prefetch: int = Field(default=4, ge=1)  # batches each worker makes ahead
    cache: ByteSize | Literal["auto"] = "auto"  # memory for decoded images, such as 2GiB; 0: none are kept


class TrainLoader:
    """Full batches of augmented samples without end; step s has positions s * batch … (s + 1) * batch of
    the `SampleOrder`. What a step holds depends on the seed alone, not on the workers or on where one starts.
    With `places`, only the samples at these places of each step are made: a replica's share.
    """

    def __init__(
        self,
        images: ImageReader,
        records: Sequence[Record],
        pipeline: Pipeline,
        *,
        batch: int,
        seed: int,
        workers: Workers | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        self.batch = batch
        self._places = range(batch) if places is None else places
        self.order = SampleOrder(len(records), seed)
        self._reader = _Reader(images, records, pipeline, seed)
        self._workers = workers or Workers()

    def batches(self, start_step: int = 0, num_steps: int | None = None) -> Iterator[Batch]:
        """From `start_step` on. An image that cannot be read is left out and named in `skipped`. If that
        leaves nothing, a replica's share is blank, for others may have read theirs; else it is a `DataError`.
        """
        steps = itertools.count(start_step)
        chosen = steps if num_steps is None else itertools.islice(steps, num_steps)
        requests = (self._request(step) for step in chosen)
        for parts in fetch_all(self._reader.train_parts, requests, self._workers):
            if parts["is_blank"] and len(self._places) == self.batch:
                raise DataError(
                    f"none of the {self.batch} images of a batch could be read; "
                    f"the first: {parts['skipped'][0]}",
                    advice="check that the data set is still in its place",
                )
            yield Batch(**parts)

    def _request(self, step: int) -> list[Place]:
        whole = self.order.slice(step * self.batch, self.batch)
        return [whole[place] for place in self._places]


@dataclass(frozen=True, kw_only=True, eq=False)
class EvalBatch:
    """Images to evaluate; one view and one record for each."""

    inputs: Tensor  # uint8 (B, 3, H, W), B at least 1
    views: tuple[View, ...]  # `inverse_boxes` brings what was found back to pixels of the original
    records: tuple[Record, ...]  # key, size and target in pixels of the original
    skipped: tuple[str, ...] = ()  # what could not be read and was left out, in words

    def __len__(self) -> int:
        return len(self.records)


class EvalLoader:
    """Each record once, in order; the last batch may be smaller."""

    def __init__(
        self,
        images: ImageReader,
        records: Sequence[Record],
        pipeline: Pipeline,
        *,
        batch: int,
        workers: Workers | None = None,
    ) -> None:
        self.batch = batch
        self._records = records
        self._reader = _Reader(images, records, pipeline, seed=0)
        self._workers = workers or Workers()

    def __len__(self) -> int:
        """The most batches there can be: one that is unreadable as a whole is not given."""
        return math.ceil(len(self._records) / self.batch)

    def __iter__(self) -> Iterator[EvalBatch]:
        """`DataError` if no image at all could be read."""
        count = len(self._records)
        places = [(0, index) for index in range(count)]
        requests = (places[first : first + self.batch] for first in range(0, count, self.batch))
        held: EvalBatch | None = None  # until it is known whether all that follows was skipped
        skipped: tuple[str, ...] = ()
        for parts in fetch_all(self._reader.eval_parts, requests, self._workers):
            skipped += parts["skipped"]
            if parts["inputs"] is None:
                continue
            if held is not None:
                yield held
            records = tuple(self._records[index] for index in parts["indices"])
            held = EvalBatch(inputs=parts["inputs"], views=parts["views"], records=records, skipped=skipped)
            skipped = ()
        if held is None:
            first = f"; the first: {skipped[0]}" if skipped else ""
            raise DataError(f"none of the {count} images to evaluate could be read{first}")
        yield replace(held, skipped=held.skipped + skipped)


Place = tuple[int, int]
"""(epoch, index of the record)"""


class _Reader:
    """Reads and transforms records; runs in the worker processes. It gives the parts of a batch rather
    than a batch, with `inputs` None if nothing could be read: dictionaries are what torch can pin.
    """

    def __init__(self, images: ImageReader, records: Sequence[Record], pipeline: Pipeline, seed: int) -> None:
        self._images = images
        self._records = records
        self._pipeline = pipeline
        self._seed = seed

    def train_parts(self, places: list[Place]) -> dict[str, Any]:
        """The fields of a `Batch`."""
        read, skipped = self._read(places)
        samples = [sample for _, sample, _ in read] or [self._blank()] * 2  # a BatchNorm may need two
        batch = replace(collate(samples, skipped=skipped), is_blank=not read)
        return {name: getattr(batch, name) for name in ("inputs", "targets", "keys", "skipped", "is_blank")}

    def _blank(self) -> Sample:
        black: Image = np.zeros((8, 8, 3), dtype=np.uint8)
        image, target, _ = self._pipeline(black, Target.of([], []), sample_rng(self._seed, 0, 0))
        return Sample(image=image, target=target, key="")

    def eval_parts(self, places: list[Place]) -> dict[str, Any]:
        """The fields of an `EvalBatch`, with `indices` in place of the records."""
        read, skipped = self._read(places)
        return {
            "inputs": stack_images([sample.image for _, sample, _ in read]) if read else None,
            "views": tuple(view for _, _, view in read),
            "indices": [index for index, _, _ in read],
            "skipped": skipped,
        }

    def _read(self, places: list[Place]) -> tuple[list[tuple[int, Sample, View]], tuple[str, ...]]:
        """What could be read, and in words what could not."""
        read: list[tuple[int, Sample, View]] = []
        skipped: list[str] = []
        for epoch, index in places:
            try:
                read.append((index, *self._sample(epoch, index)))
            except DataError as error:
                skipped.append(error.message)
        return read, tuple(skipped)

    def _sample(self, epoch: int, index: int) -> tuple[Sample, View]:
        record = self._records[index]
        rng = sample_rng(self._seed, epoch, index)
        scene = self._pipeline.look((record.width, record.height), record.target, rng)
        image = self._images.read(record, reduction=scene.view.reduction)
        reduction = _reduction(record, image, at_most=scene.view.reduction)
        image = self._pipeline.draw(image, scene.view, rng, reduction=reduction)
        return Sample(image=image, target=scene.target, key=record.key), scene.view


def _reduction(record: Record, image: Image, *, at_most: int) -> int:
    """By which the image was reduced, 1 or what was asked for; `DataError` if it is of another size."""
    height, width = image.shape[:2]
    for reduction in (at_most, 1):
        if (width, height) == (-(-record.width // reduction), -(-record.height // reduction)):
            return reduction
    was = f"{record.width} x {record.height}"
    raise DataError(f"{record.path or record.key}: is {width} x {height} pixels now, was {was}")
