"""The order in which training sees the samples: a function of the seed alone."""

from __future__ import annotations

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Ints

_ORDER, _SAMPLE = 0, 1  # two families of random streams that must never meet


class SampleOrder:
    """The endless stream of all epochs' permutations, one after the other.

    A position in it says which sample is meant, so where training stands is one integer, and batches of
    any size lose and repeat nothing at the border of two epochs.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        if num_samples < 1:
            raise DataError("there are no images to train on")
        self.num_samples = num_samples
        self.seed = seed
        self._cached: tuple[int, Ints] = (-1, np.empty(0, dtype=np.int64))

    def slice(self, start: int, count: int) -> list[tuple[int, int]]:
        """(epoch, index of the sample) at positions start..start + count."""
        found: list[tuple[int, int]] = []
        while len(found) < count:
            epoch, first = divmod(start + len(found), self.num_samples)
            part = self.epoch(epoch)[first : first + count - len(found)]
            found.extend((epoch, int(index)) for index in part)
        return found

    def epoch(self, epoch: int) -> Ints:
        """(num_samples,) the permutation of one epoch."""
        if self._cached[0] != epoch:
            source = np.random.SeedSequence(self.seed, spawn_key=(_ORDER, epoch))
            self._cached = (epoch, np.random.default_rng(source).permutation(self.num_samples))
        return self._cached[1]


def sample_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """All the randomness of one sample in one epoch."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SAMPLE, epoch, index)))
