"""Samples that are crops of images, or entire images, resized to the one shape that all inputs of a set have:
read all at once, or when they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools, Ints
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import ImageReader
from boxcrew.data.examples.example_set import ExampleOptions, ExampleSplit, Fetched, InMemory
from boxcrew.data.images.cache import Pixels, SampleCache

DEFAULT_SIDE = 32
LARGEST_OWN_SIDE = 256
"""Images that all have one size up to this keep it, unless a size is set."""

Shape = tuple[int, int, int]
"""(height, width, channels), of 1 or 3 channels."""


def choose_shape(options: ExampleOptions, common: Shape | None) -> Shape:
    """Return the shape of all inputs of a set. `common` is the shape its images have if they all agree."""
    if options.shape is not None:
        return options.shape
    height, width, channels = common or (DEFAULT_SIDE, DEFAULT_SIDE, 3)
    if max(height, width) > LARGEST_OWN_SIDE:
        height = width = DEFAULT_SIDE
    if options.size is not None:
        height = width = options.size
    return height, width, channels


def resize_to(image: Pixels, shape: Shape) -> Pixels:
    """Resize an image (height, width, 1 or 3) and convert its channels. The aspect ratio is not kept."""
    height, width, channels = shape
    if image.shape[:2] != (height, width):
        shrinks = image.shape[0] >= height and image.shape[1] >= width
        method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR  # enlarging by area shows blocks
        resized: Pixels = cv2.resize(image, (width, height), interpolation=method)
        image = resized.reshape(height, width, -1)  # OpenCV drops a single channel
    if image.shape[2] == channels:
        return image
    if channels == 3:
        return np.repeat(image, 3, axis=2)
    gray: Pixels = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return gray[..., None]


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageCrops:
    """The M samples of one image; M is at least 1."""

    record: Record
    boxes: Ints  # (M, 4) xyxy within the image, integer pixels
    labels: Ints  # (M,)
    keys: tuple[str, ...]

    def select(self, mask: Bools) -> ImageCrops:
        keys = tuple(compress(self.keys, mask))
        return replace(self, boxes=self.boxes[mask], labels=self.labels[mask], keys=keys)


class CropList(list[ImageCrops]):
    """The samples of several images, one image after the other."""

    @property
    def labels(self) -> Ints:
        return np.concatenate([np.empty(0, dtype=np.int64), *(crops.labels for crops in self)])

    def select(self, mask: Bools) -> CropList:
        """Return the samples of the mask, without the images of which none is left."""
        divided = self._divide(mask)
        return CropList(crops if kept.all() else crops.select(kept) for crops, kept in divided if kept.any())

    def with_labels(self, labels: Ints) -> CropList:
        return CropList(replace(crops, labels=of_image) for crops, of_image in self._divide(labels))

    def _divide(self, values: npt.NDArray[Any]) -> Iterator[tuple[ImageCrops, npt.NDArray[Any]]]:
        """Yield each image with the values (N,) of its samples."""
        ends = np.cumsum([len(crops.labels) for crops in self])
        return zip(self, np.split(values, ends[:-1]), strict=False)  # np.split gives one of no images


def crop_image(reader: ImageReader, crops: ImageCrops, shape: Shape) -> Pixels:
    """Return all crops of an image, (M, *shape), or raise `DataError` if it cannot be read. It is decoded at
    the largest reduction at which none of its crops has to be enlarged, so a crop has the same pixels
    whichever others are requested with it.
    """
    width, height = (crops.boxes[:, 2:] - crops.boxes[:, :2]).min(axis=0).tolist()
    reductions = (by for by in (8, 4, 2) if height >= by * shape[0] and width >= by * shape[1])
    image = reader.read(crops.record, reduction=next(reductions, 1))
    scale = np.array([image.shape[1] / crops.record.width, image.shape[0] / crops.record.height])
    starts = np.floor(crops.boxes[:, :2] * scale).astype(np.int64).tolist()
    ends = np.ceil(crops.boxes[:, 2:] * scale).astype(np.int64).tolist()
    corners = zip(starts, ends, strict=True)
    return np.stack([resize_to(image[y0:y1, x0:x1], shape) for (x0, y0), (x1, y1) in corners])


def read_crops(
    reader: ImageReader, images: Sequence[ImageCrops], shape: Shape, *, workers: int
) -> tuple[InMemory, tuple[str, ...]]:
    """Read the crops of all images, and return them with a message for each image that cannot be read."""
    counts = np.array([len(crops.labels) for crops in images], dtype=np.int64)
    labels = CropList(images).labels
    inputs = np.empty((len(labels), *shape), dtype=np.uint8)

    def read(crops: ImageCrops, end: int) -> str:
        try:
            inputs[end - len(crops.labels) : end] = crop_image(reader, crops, shape)
        except DataError as error:
            return error.message
        return ""

    with ThreadPoolExecutor(max_workers=workers) as pool:
        failures = list(pool.map(read, images, np.cumsum(counts).tolist()))
    readable = np.repeat([not failure for failure in failures], counts)
    samples = InMemory(inputs, labels, [key for crops in images for key in crops.keys])
    return samples.select(readable), tuple(filter(None, failures))


class LazyCrops(ExampleSplit):
    """Crops that are read when they are fetched. The first of them, as many as fit into `budget` bytes, are
    then kept for all loader processes.
    """

    def __init__(
        self, images: ImageReader, cuts: Sequence[ImageCrops], shape: Shape, *, budget: int = 0
    ) -> None:
        self.labels = CropList(cuts).labels
        self._images, self._cuts, self._shape = images, cuts, shape
        counts = np.array([len(cut.labels) for cut in cuts], dtype=np.int64)
        self._owners = np.repeat(np.arange(len(cuts)), counts)  # (N,) the cut of each example
        self._firsts = np.cumsum(counts) - counts  # (len(cuts),) the first example of each cut
        self._cache = SampleCache(shape, min(len(self), budget // self.input_bytes))

    @property
    def input_bytes(self) -> int:
        return math.prod(self._shape)

    @property
    def cached_bytes(self) -> int:
        """Return how much of the budget is used once all examples have been read."""
        return self._cache.count * self.input_bytes

    def with_cache(self, num_bytes: int) -> LazyCrops:
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
                crops = crop_image(self._images, self._cuts[owner], self._shape)
            except DataError as error:
                skipped.append(error.message)
                continue
            # All crops of the image are cached: reading the image is what takes the time.
            self._cache.put(int(self._firsts[owner]), crops)
            inputs[rows] = crops[chosen[rows] - self._firsts[owner]]
            readable[rows] = True
        if skipped:
            inputs, chosen = inputs[readable], chosen[readable]
        return Fetched(inputs=inputs, labels=self.labels[chosen], indices=chosen, skipped=tuple(skipped))
