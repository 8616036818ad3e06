"""The order in which training sees the samples: a function of the seed alone."""

from __future__ import annotations

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Ints

_ORDER, _SAMPLE, _STEP = 0, 1, 2  # families of random streams that must never meet


class SampleOrder:
    """The endless stream of all epochs' permutations, one after the other.

    A position in it says which sample is meant, so where training stands is one integer, and batches of
    any size lose and repeat nothing at the border of two epochs.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        if num_samples < 1:
            raise DataError("there is nothing to train on")
        self.num_samples = num_samples
        self.seed = seed
        self._cached: tuple[int, Ints] = (-1, np.empty(0, dtype=np.int64))

    def slice(self, start: int, count: int) -> list[tuple[int, int]]:
        """(epoch, index of the sample) at positions start..start + count."""
        epochs, indices = self.arrays(start, count)
        return list(zip(epochs.tolist(), indices.tolist(), strict=True))

    def arrays(self, start: int, count: int) -> tuple[Ints, Ints]:
        """The same: (count,) epochs and (count,) indices. No two positions have both in common: what is drawn
        at random for a sample is drawn from the two.
        """
        epochs, firsts = np.divmod(np.arange(start, start + count), self.num_samples)
        indices = np.empty(count, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            mine = epochs == epoch
            indices[mine] = self.epoch(epoch)[firsts[mine]]
        return epochs, indices

    def epoch(self, epoch: int) -> Ints:
        """(num_samples,) the order of one epoch."""
        if self._cached[0] != epoch:
            source = np.random.SeedSequence(self.seed, spawn_key=(_ORDER, epoch))
            self._cached = (epoch, self._drawn(np.random.default_rng(source)))
        return self._cached[1]

    def _drawn(self, rng: np.random.Generator) -> Ints:
        return rng.permutation(self.num_samples)


class BalancedOrder(SampleOrder):
    """Samples drawn with replacement, all classes equally often in the mean."""

    def __init__(self, labels: Ints, seed: int) -> None:
        super().__init__(len(labels), seed)
        counts = np.bincount(labels)
        self._chances = np.cumsum(1 / counts[labels]) / np.count_nonzero(counts)

    def arrays(self, start: int, count: int) -> tuple[Ints, Ints]:
        """Each position is an epoch of its own: a rare sample comes up many times in one of the stream."""
        return np.arange(start, start + count), super().arrays(start, count)[1]

    def _drawn(self, rng: np.random.Generator) -> Ints:
        places = np.searchsorted(self._chances, rng.random(self.num_samples))
        return np.minimum(places, self.num_samples - 1)  # of a sum that rounding keeps below 1


def sample_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """All the randomness of one sample in one epoch."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SAMPLE, epoch, index)))


def step_rng(seed: int, step: int) -> np.random.Generator:
    """All the randomness that the samples of one step share."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STEP, step)))
