"""Images of one shape kept in memory that all loader processes share, so that each is read once a run."""

from __future__ import annotations

import math
import multiprocessing
from typing import Any

import numpy as np

from boxcrew.core.types import Bools, Ints
from boxcrew.data.images.cache import Pixels, hold, shared_bytes


class KeptPictures:
    """Memory for the images 0..count-1 of a split; others are not kept. It is mapped before loader processes
    are forked, so they share it.
    """

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self._pixels = shared_bytes(count * math.prod(shape)).reshape(count, *shape)
        self._is_there = shared_bytes(count)
        self._lock = multiprocessing.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle an empty cache: processes that are not forked cannot share the memory."""
        return KeptPictures, (self._pixels.shape[1:], 0)

    @property
    def count(self) -> int:
        return len(self._pixels)

    def known(self, indices: Ints) -> Bools:
        """Return a mask of the images that are in memory."""
        known = np.zeros(len(indices), dtype=np.bool_)
        inside = np.flatnonzero(indices < self.count)
        if len(inside):
            # Also to look: a picture must not be seen before the pixels that were written ahead of it.
            with hold(self._lock) as held:
                known[inside] = self._is_there[indices[inside]] if held else 0
        return known

    def get(self, indices: Ints) -> Pixels:
        """Return a copy of images that are in memory."""
        return self._pixels[indices]

    def put(self, first: int, pictures: Pixels) -> None:
        """Store images from index `first` on. Storing one twice is harmless: the pixels are the same."""
        end = min(first + len(pictures), self.count)
        if first >= end:
            return
        self._pixels[first:end] = pictures[: end - first]
        with hold(self._lock) as held:
            if held:
                self._is_there[first:end] = 1
