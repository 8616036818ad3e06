"""Examples that are parts of images, or whole ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Ints
from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.source import SPLITS, ImageReader, Record
from boxcrew.data.examples.example_set import Examples, Fetched, InMemory
from boxcrew.data.examples.labelled import Settled, settle_classes
from boxcrew.data.examples.shapes import Shape, fit
from boxcrew.data.images.cache import Pixels, SampleCache


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """The examples of one image, M of them, at least one."""

    record: Record
    boxes: Ints  # (M, 4) xyxy within the image, in whole pixels
    labels: Ints  # (M,)
    keys: tuple[str, ...]

    def with_classes(self, numbers: Ints) -> Cut | None:
        """With labels by `numbers`, without those of which that is -1; None if nothing is left."""
        labels = numbers[self.labels]
        left = np.flatnonzero(labels >= 0)
        if not len(left):
            return None
        keys = tuple(self.keys[place] for place in left.tolist())
        return replace(self, boxes=self.boxes[left], labels=labels[left], keys=keys)


def labels_of(cuts: Sequence[Cut]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(cut.labels for cut in cuts)])


def settle_cuts(
    root: Path,
    names: Sequence[str],
    splits: Mapping[str, Sequence[Cut]],
    problems: Sequence[Problem],
    *,
    evaluated: bool = False,
) -> tuple[Settled, dict[str, list[Cut]]]:
    """`settle_classes`, and what is then left in each split, of those that are not empty, in their order."""
    labels = {split: labels_of(cuts) for split, cuts in splits.items()}
    settled = settle_classes(root, names, labels, problems, evaluated=evaluated)
    left = {
        split: [kept for cut in splits[split] if (kept := cut.with_classes(settled.numbers))]
        for split in SPLITS
        if split in splits
    }
    return settled, {split: cuts for split, cuts in left.items() if cuts}


def cut_out(images: ImageReader, cut: Cut, shape: Shape) -> Pixels:
    """(M, *shape) all examples of an image; `DataError` if it cannot be read. How far the image is reduced
    in reading depends on all of them, so that an example is the same whoever is asked for with it.
    """
    image = images.read(cut.record, reduction=_reduction(cut.boxes, shape))
    height, width = image.shape[:2]
    scale = np.array([width / cut.record.width, height / cut.record.height])
    starts = np.floor(cut.boxes[:, :2] * scale).astype(np.int64).tolist()
    ends = np.ceil(cut.boxes[:, 2:] * scale).astype(np.int64).tolist()
    pictures = np.empty((len(cut.boxes), *shape), dtype=np.uint8)
    for place, ((x0, y0), (x1, y1)) in enumerate(zip(starts, ends, strict=True)):
        pictures[place] = fit(image[y0:y1, x0:x1], shape)
    return pictures


def _reduction(boxes: Ints, shape: Shape) -> int:
    """The most that leaves every part at least as large as it is to become."""
    width, height = (boxes[:, 2:] - boxes[:, :2]).min(axis=0).tolist()
    return next((by for by in (8, 4, 2) if height >= by * shape[0] and width >= by * shape[1]), 1)


def read_at_once(
    images: ImageReader, cuts: Sequence[Cut], shape: Shape, *, workers: int
) -> tuple[InMemory, tuple[str, ...]]:
    """All examples, but for those of images that cannot be read, which are told in words."""
    counts = np.array([len(cut.labels) for cut in cuts], dtype=np.int64)
    ends = np.cumsum(counts).tolist()
    inputs = np.empty((int(counts.sum()), *shape), dtype=np.uint8)

    def read(cut: Cut, end: int) -> str:
        try:
            inputs[end - len(cut.labels) : end] = cut_out(images, cut, shape)
        except DataError as error:
            return error.message
        return ""

    with ThreadPoolExecutor(max_workers=workers) as pool:
        failures = list(pool.map(read, cuts, ends))
    keys = [key for cut, failure in zip(cuts, failures, strict=True) if not failure for key in cut.keys]
    labels, skipped = labels_of(cuts), tuple(filter(None, failures))
    if skipped:
        readable = np.repeat(np.array([not failure for failure in failures]), counts)
        inputs, labels = inputs[readable], labels[readable]
    return InMemory(inputs, labels, keys), skipped


def read_when_asked(
    images: ImageReader, splits: Mapping[str, Sequence[Cut]], shape: Shape
) -> dict[str, LazyCrops]:
    return {split: LazyCrops(images, cuts, shape) for split, cuts in splits.items()}


class LazyCrops(Examples):
    """Crops that are read when they are fetched. The first of them, as many as fit into `budget` bytes, are
    then kept for all loader processes.
    """

    def __init__(self, images: ImageReader, cuts: Sequence[Cut], shape: Shape, *, budget: int = 0) -> None:
        self.labels = labels_of(cuts)
        self._images = images
        self._cuts = cuts
        self._shape = shape
        counts = np.array([len(cut.labels) for cut in cuts], dtype=np.int64)
        self._owners = np.repeat(np.arange(len(cuts)), counts)  # (N,) the cut of each example
        self._firsts = np.cumsum(counts) - counts  # (len(cuts),) the first example of each cut
        self._cache = SampleCache(shape, min(len(self), budget // self.input_bytes))

    @property
    def input_bytes(self) -> int:
        return math.prod(self._shape)

    @property
    def kept_bytes(self) -> int:
        """Return how much of the budget is used once all examples have been read."""
        return self._cache.count * self.input_bytes

    def keeping(self, num_bytes: int) -> LazyCrops:
        return LazyCrops(self._images, self._cuts, self._shape, budget=max(0, num_bytes))

    def key(self, index: int) -> str:
        owner = int(self._owners[index])
        return self._cuts[owner].keys[index - int(self._firsts[owner])]

    def fetch(self, indices: Sequence[int] | Ints) -> Fetched:
        chosen = np.asarray(indices, dtype=np.int64)
        readable = self._cache.has(chosen)
        inputs = np.empty((len(chosen), *self._shape), dtype=np.uint8)
        inputs[readable] = self._cache.get(chosen[readable])
        missing = np.flatnonzero(~readable)
        owners = self._owners[chosen[missing]]
        skipped = []
        for owner in dict.fromkeys(owners.tolist()):
            rows = missing[owners == owner]
            try:
                crops = self._read(owner)
            except DataError as error:
                skipped.append(error.message)
                continue
            inputs[rows] = crops[chosen[rows] - self._firsts[owner]]
            readable[rows] = True
        if skipped:
            inputs, chosen = inputs[readable], chosen[readable]
        return Fetched(inputs=inputs, labels=self.labels[chosen], indices=chosen, skipped=tuple(skipped))

    def _read(self, owner: int) -> Pixels:
        """Return all crops of one image, and cache them: reading the image is what takes the time."""
        crops = cut_out(self._images, self._cuts[owner], self._shape)
        self._cache.put(int(self._firsts[owner]), crops)
        return crops
