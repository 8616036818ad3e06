"""Annotated images as samples of training and evaluation: read, transformed, and joined into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.input_size import Extent
from boxcrew.core.types import Batch, Floats, Image, Ints, Sample, Target
from boxcrew.data.detection.records import Record, Records
from boxcrew.data.detection.source import FetchingReader, ImageReader
from boxcrew.data.loading.collate import collate
from boxcrew.data.loading.extra_inputs import region_inputs
from boxcrew.data.loading.loader import Fields, StepRequest, batches_of, eval_fields
from boxcrew.data.loading.mixed_samples import Mixer
from boxcrew.data.loading.order import mix_rng, sample_rng, step_rng
from boxcrew.data.loading.workers import Workers
from boxcrew.data.transforms.draws import sample_draws
from boxcrew.data.transforms.mosaic import Mixing
from boxcrew.data.transforms.pipeline import Pipeline
from boxcrew.data.transforms.view import View

Read = TypeVar("Read")

Regions = Callable[[Record], Floats]
"""Gives the boxes (N, 4) xyxy, in pixels of the original, where objects of an image may be. It runs in the
loader processes, so it must be picklable.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class DetectionEvalBatch(Batch):
    """Images to evaluate, at least one, with a view and a record for each."""

    views: tuple[View, ...]  # `inverse_boxes` brings detections back to pixels of the original
    records: tuple[Record, ...]  # key, size and target in pixels of the original


@dataclass(frozen=True, eq=False)
class DetectionSamples:
    """Reads and transforms records; a `SampleMaker`."""

    images: ImageReader
    records: Sequence[Record]
    pipeline: Pipeline
    regions: Regions | None = None
    mixing: Mixing | None = None  # of training samples
    mixed_steps: int | None = None  # the first steps, whose samples are mixed; None: all
    noun = "images"

    def make(self, request: StepRequest) -> Batch:
        pipeline, mixer = self._step_pipeline(request), self._mixer(request.step)
        self._fetch(request.share()[1])

        def sample(index: int, *ids: int) -> Sample:
            if mixer is None:
                return self._sample(pipeline, index, sample_rng(*ids))[0]
            return mixer.sample(pipeline, index, sample_rng(*ids), mix_rng(*ids))

        read, skipped = _read_each(sample, request.seed, *request.share())
        samples = [replace(made, draw=draw) for made, _, draw in read]
        blanks = [] if samples else [self._blank(pipeline, request.seed)] * 2
        return replace(collate(samples or blanks, skipped=skipped), is_blank=not samples)

    def _fetch(self, indices: Ints) -> None:
        """Let a reader that reads from afar read several images at the same time."""
        if isinstance(self.images, FetchingReader):
            self.images.fetch([self.records[index] for index in indices.tolist()])

    def _mixer(self, step: int) -> Mixer | None:
        """Return what mixes the samples of a step; None if they are not mixed."""
        if self.mixing is None or (self.mixed_steps is not None and step >= self.mixed_steps):
            return None
        num = len(self.records)
        return Mixer(mixing=self.mixing, num_images=num, read=lambda *args: self._sample(*args)[0])

    def _step_pipeline(self, request: StepRequest) -> Pipeline:
        """Return the pipeline that all samples of a step share, those of other replicas included."""
        num_sizes = len(self.pipeline.size.sides)
        index = int(step_rng(request.seed, request.step).integers(num_sizes)) if num_sizes > 1 else 0
        return self.pipeline.for_step(index, (self.records[i].extent for i in request.indices.tolist()))

    def _blank(self, pipeline: Pipeline, seed: int) -> Sample:
        black: Image = np.zeros((8, 8, 3), dtype=np.uint8)
        image, target, view = pipeline(black, Target.of([], []), sample_rng(seed, 0, 0))
        extra = region_inputs(target.boxes, view) if self.regions else {}
        return Sample(image=image, target=target, key="", extra=extra)

    def eval_fields(self, indices: Ints) -> Fields:
        """Return the fields of a `DetectionEvalBatch`, but `indices` for the records. `inputs` is None
        if nothing could be read.
        """
        self._fetch(indices)

        def sample(index: int, *ids: int) -> tuple[Sample, View]:
            return self._sample(self.pipeline, index, sample_rng(*ids))

        read, skipped = _read_each(sample, 0, np.zeros_like(indices), indices)
        if not read:
            return {"inputs": None, "skipped": skipped}
        samples = [replace(made, draw=draw) for (made, _), _, draw in read]
        views, read_indices = zip(*((view, index) for (_, view), index, _ in read), strict=True)
        return {**vars(collate(samples, skipped=skipped)), "views": views, "indices": read_indices}

    def eval_requests(self, batch: int) -> list[Ints]:
        """Return the indices of each batch of an evaluation. Only images with inputs of the same size are in
        one batch: padding to a common size would make detections depend on the other images.
        """
        records = Records.of(self.records)
        canvases = {extent: self.pipeline.canvas_of(extent) for extent in records.extents()}
        indices: dict[Extent, list[int]] = {canvas: [] for canvas in canvases.values()}
        for index, (width, height) in enumerate(records.sizes.tolist()):
            indices[canvases[width, height]].append(index)
        return [request for group in indices.values() for request in batches_of(group, batch)]

    def _sample(self, pipeline: Pipeline, index: int, rng: np.random.Generator) -> tuple[Sample, View]:
        record = self.records[index]

        def read(reduction: int) -> Image:
            return self.images.read(record, reduction=reduction)

        name = str(record.path or record.key)
        image, scene = pipeline.make_input(record.extent, record.target, read, rng, name=name)
        extra = region_inputs(self.regions(record), scene.view) if self.regions else {}
        return Sample(image=image, target=scene.target, key=record.key, extra=extra), scene.view


def _read_each(
    read: Callable[[int, int, int, int], Read], seed: int, epochs: Ints, indices: Ints
) -> tuple[list[tuple[Read, int, int]], tuple[str, ...]]:
    """Return `read(index, seed, epoch, index)` of each sample that can be read, with its index and its draw,
    and a message about each of the others.
    """
    done: list[tuple[Read, int, int]] = []
    skipped: list[str] = []
    draws = sample_draws(seed, epochs, indices)
    for epoch, index, draw in zip(epochs.tolist(), indices.tolist(), draws.tolist(), strict=True):
        try:
            done.append((read(index, seed, epoch, index), index, draw))
        except DataError as error:
            skipped.append(error.message)
    return done, tuple(skipped)


def eval_image_batches(
    samples: DetectionSamples, *, batch: int, workers: Workers | None = None
) -> Iterator[DetectionEvalBatch]:
    """Yield every record once, in order among those whose inputs have the same size; `DataError` if no image
    at all could be read.
    """
    records, requests = samples.records, samples.eval_requests(batch)
    for fields in eval_fields(samples.eval_fields, requests, workers=workers or Workers(), noun=samples.noun):
        yield DetectionEvalBatch(records=tuple(records[index] for index in fields.pop("indices")), **fields)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImagePasses:
    """All records in batches, in a fixed order and with their targets; every iteration is one more such pass.
    `progress` is called with the number of images of the pass that are done.
    """

    samples: DetectionSamples
    batch: int
    workers: Workers
    progress: Callable[[int], None] | None
    _skipped: dict[str, None] = field(default_factory=dict)  # a set that keeps its order

    @property
    def skipped(self) -> tuple[str, ...]:
        """A message about each image that could not be read and was left out of a pass."""
        return tuple(self._skipped)

    def __len__(self) -> int:
        return len(self.samples.records)

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of a pass; `DataError` if no image at all could be read."""
        num = 0
        for batch in eval_image_batches(self.samples, batch=self.batch, workers=self.workers):
            self._skipped.update(dict.fromkeys(batch.skipped))
            yield batch
            num += len(batch)
            if self.progress is not None:
                self.progress(num)
