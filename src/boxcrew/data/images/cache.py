"""Decoded images kept in memory that all loader processes share, so that each file is decoded once a run."""

from __future__ import annotations

import math
import mmap
import multiprocessing
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.synchronize import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Image
from boxcrew.data.detection.source import ImageReader, Record

REDUCTIONS = (1, 2, 4, 8)
Pixels = npt.NDArray[np.uint8]
LOCK_SECONDS = 10.0  # it is held for microseconds
Place = npt.NDArray[np.int64]
"""Where images begin in the memory, and their heights and widths."""
_NOT_KEPT = -1
_CELL = np.dtype(np.int64).itemsize


class ImageCache:
    """Reads through to `images` and keeps what fits into `budget` bytes; what does not is read each time.
    What is read for one reduction is not used for another: pixels are the same with and without a cache.

    The memory is mapped before loader processes are forked, and so is theirs too. A process that is started
    in another way gets the reader without the cache.
    """

    def __init__(self, images: ImageReader, records: Iterable[Record], *, budget: int) -> None:
        self._images = images
        kept = list(records)
        self._rows = {record.key: row for row, record in enumerate(kept)}
        most = sum(record.width * record.height * 3 for record in kept) * 4 // 3  # all reductions of all
        self._pixels = shared_bytes(min(budget, most))
        cells = shared_bytes(_CELL * (1 + len(kept) * len(REDUCTIONS) * 3))
        numbers: npt.NDArray[np.int64] = cells.view(np.int64)
        self._used = numbers[:1]  # bytes of `_pixels`
        # (records, reductions, 3): where an image begins in `_pixels`, its height and its width.
        self._places = numbers[1:].reshape(len(kept), len(REDUCTIONS), 3)
        self._places[:] = _NOT_KEPT
        self._lock = multiprocessing.Lock()

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        """Pixels that are not to be written to: they may be those of the cache."""
        row = self._rows.get(record.key)
        if row is None:
            return self._images.read(record, reduction=reduction)
        places, column = self._places[row], REDUCTIONS.index(reduction)
        kept = self._find(places[column])
        if kept is not None:
            return kept
        image = self._images.read(record, reduction=reduction)
        if image.shape[:2] == (record.height, record.width):
            self._keep_whole(places, column, image)
        else:
            self._keep(places[column], image)
        return image

    @property
    def used_bytes(self) -> int:
        return int(self._used[0])

    def _find(self, place: Place) -> Image | None:
        # Also to look: a place must not be seen before the pixels that were written ahead of it.
        with self._hold() as held:
            start, height, width = place.tolist() if held else (_NOT_KEPT, 0, 0)
        if start == _NOT_KEPT:
            return None
        kept = self._view(start, (height, width, 3))
        kept.flags.writeable = False
        return kept

    def _keep_whole(self, places: Place, column: int, image: Image) -> None:
        """Many kinds of files are read whole whatever the reduction: these pixels are kept once."""
        self._keep(places[0], image)
        with self._hold() as held:
            if held:
                places[column] = places[0]

    def _keep(self, place: Place, image: Image) -> None:
        with self._hold() as held:
            start = int(self._used[0])
            if not held or place[0] != _NOT_KEPT or start + image.nbytes > len(self._pixels):
                return
            self._used[0] = start + image.nbytes
        self._view(start, image.shape)[:] = image
        with self._hold() as held:
            if held:
                place[:] = (start, *image.shape[:2])

    def _hold(self) -> AbstractContextManager[bool]:
        return hold(self._lock)

    def _view(self, start: int, shape: tuple[int, ...]) -> Image:
        return self._pixels[start : start + math.prod(shape)].reshape(shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_is, (self._images,)


def _as_it_is(images: ImageReader) -> ImageReader:
    return images


def shared_bytes(count: int) -> Pixels:
    """Memory that stays the same one over a fork. It is taken from the system only as it is written to, and,
    unlike that of /dev/shm, not limited by what a container has there.
    """
    return np.frombuffer(mmap.mmap(-1, max(1, count)), dtype=np.uint8)[:count]


@contextmanager
def hold(lock: Lock) -> Iterator[bool]:
    """The lock; False where it cannot be had, because a process that held it was killed: nothing waits for
    ever, images are then read without the cache.
    """
    held = lock.acquire(timeout=LOCK_SECONDS)
    try:
        yield held
    finally:
        if held:
            lock.release()
