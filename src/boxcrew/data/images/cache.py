"""Decoded pixels kept in memory that all loader processes share, so that each file is decoded once a run.

`ImageCache` keeps images of any size, `SampleCache` samples of one shape. The memory of both is mapped before
loader processes are forked, which makes it theirs too.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Image, Ints
from boxcrew.data.detection.records import KeyRows, Record, Records
from boxcrew.data.detection.source import FetchingReader, ImageReader

REDUCTIONS = (1, 2, 4, 8)
LOCK_SECONDS = 10.0  # the lock is held for microseconds
Pixels = npt.NDArray[np.uint8]
_Key = int | slice | Ints | tuple[int, int]


class ImageCache:
    """Reads through to `images` and keeps the images that fit into `budget` bytes; others are read each time.
    An image read at one reduction is not used for another: pixels are the same with and without a cache.
    A process that is not forked gets the reader without the cache.
    """

    def __init__(self, images: ImageReader, records: Iterable[Record], *, budget: int) -> None:
        self._images = images
        known = Records.of(records)
        self._rows = KeyRows(known)
        most = int(known.sizes.prod(axis=1).sum()) * 3 * 4 // 3  # all reductions of all
        self._pixels = _shared_zeros((min(budget, most),), np.uint8)
        self._used = _shared_zeros((1,), np.int64)  # bytes of `_pixels`
        # Where an image begins in `_pixels`, its height and its width.
        self._index = _Index((len(known), len(REDUCTIONS), 3), np.int64)

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        """Return pixels that must not be written to: they may be those of the cache."""
        row = self._rows.find(record.key)
        if row is None:
            return self._images.read(record, reduction=reduction)
        key = (row, REDUCTIONS.index(reduction))
        start, height, width = self._index.get(key).tolist()
        if height:
            cached = self._view(start, (height, width, 3))
            cached.flags.writeable = False
            return cached
        image = self._images.read(record, reduction=reduction)
        if image.shape[:2] == (record.height, record.width):
            # Many kinds of files are read in full size whatever the reduction: these pixels are kept once.
            self._add((row, 0), image)
            self._index.set(key, self._index.get((row, 0)))
        else:
            self._add(key, image)
        return image

    def fetch(self, records: Sequence[Record]) -> None:
        """Let the reader get the files of images that are not in the cache, if it can."""
        if isinstance(self._images, FetchingReader):
            self._images.fetch([record for record in records if not self._has(record)])

    def _has(self, record: Record) -> bool:
        row = self._rows.find(record.key)
        return row is not None and bool(self._index.entries[row, :, 1].any())

    @property
    def used_bytes(self) -> int:
        return int(self._used[0])

    def _add(self, key: _Key, image: Image) -> None:
        with self._index.locked() as held:
            start = self.used_bytes
            if not held or self._index.entries[key].any() or start + image.nbytes > len(self._pixels):
                return
            self._used[0] = start + image.nbytes
        self._view(start, image.shape)[:] = image
        self._index.set(key, (start, *image.shape[:2]))

    def _view(self, start: int, shape: tuple[int, ...]) -> Image:
        return self._pixels[start : start + math.prod(shape)].reshape(shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self._images,)


class SampleCache:
    """Keeps the samples 0..count-1 of a split, which have one shape. A process that is not forked gets an
    empty cache.
    """

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self._pixels = _shared_zeros((count, *shape), np.uint8)
        self._index = _Index((count,), np.bool_)

    def __reduce__(self) -> tuple[Any, ...]:
        return SampleCache, (self._pixels.shape[1:], 0)

    @property
    def count(self) -> int:
        return len(self._pixels)

    def has(self, indices: Ints) -> Bools:
        """Return (n,) whether the samples with these indices are in the cache."""
        cached = indices < self.count
        if cached.any():
            cached[cached] = self._index.get(indices[cached])
        return cached

    def get(self, indices: Ints) -> Pixels:
        """Return a copy of samples that are in the cache."""
        return self._pixels[indices]

    def put(self, first: int, samples: Pixels) -> None:
        """Add the samples with the indices first, first + 1, … Adding the same twice does no harm."""
        end = min(first + len(samples), self.count)
        if first < end:
            self._pixels[first:end] = samples[: end - first]
            self._index.set(slice(first, end), 1)


class _Index:
    """A shared array that says which pixels have been written; all entries begin as zeros. Also reading takes
    the lock: an entry must not be seen before the pixels that were written ahead of it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.entries = _shared_zeros(shape, dtype)
        self._lock = multiprocessing.Lock()

    def get(self, key: _Key) -> npt.NDArray[Any]:
        """Return a copy of entries; zeros if the lock cannot be had."""
        with self.locked() as held:
            entries = self.entries[key]
            return entries.copy() if held else np.zeros_like(entries)

    def set(self, key: _Key, value: npt.ArrayLike) -> None:
        """Write entries, unless the lock cannot be had."""
        with self.locked() as held:
            if held:
                self.entries[key] = value

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the lock; False if it cannot be had, because a process that held it was killed. Nothing waits
        forever: images are then read without the cache.
        """
        held = self._lock.acquire(timeout=LOCK_SECONDS)
        try:
            yield held
        finally:
            if held:
                self._lock.release()


def _identity(images: ImageReader) -> ImageReader:
    return images


def _shared_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return zeros in memory that forked processes share. The system provides it as it is written to, and
    it is not limited by the size of /dev/shm in a container.
    """
    count = math.prod(shape)
    memory = mmap.mmap(-1, max(1, count) * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype=dtype, count=count).reshape(shape)
