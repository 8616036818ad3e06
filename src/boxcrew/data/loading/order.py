"""The order in which training sees the samples, which is a function of the seed alone."""

from __future__ import annotations

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Ints

_ORDER, _SAMPLE, _STEP, _MIX = 0, 1, 2, 3  # families of random streams that must never meet


BLOCK_SHARDS = 8
"""The shards whose samples are mixed with each other by `BlockOrder`."""


class SampleOrder:
    """The endless stream of all epochs' permutations, one after the other.

    A position in it determines the sample, so the progress of training is one integer, and batches of
    any size lose and repeat nothing at the border of two epochs.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        if num_samples < 1:
            raise DataError("there is nothing to train on")
        self.num_samples = num_samples
        self.seed = seed
        self._cached: tuple[int, Ints] = (-1, np.empty(0, dtype=np.int64))

    def samples(self, start: int, count: int) -> tuple[Ints, Ints]:
        """Return the (count,) epochs and (count,) indices of the samples at positions start..start + count.
        No two positions have both in common, so random numbers of a sample are drawn from the two.
        """
        epochs, offsets = np.divmod(np.arange(start, start + count), self.num_samples)
        indices = np.empty(count, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            mask = epochs == epoch
            indices[mask] = self.epoch(epoch)[offsets[mask]]
        return epochs, indices

    def epoch(self, epoch: int) -> Ints:
        """Return the indices (num_samples,) of one epoch, in its order."""
        if self._cached[0] != epoch:
            source = np.random.SeedSequence(self.seed, spawn_key=(_ORDER, epoch))
            self._cached = (epoch, self._drawn(np.random.default_rng(source)))
        return self._cached[1]

    def _drawn(self, rng: np.random.Generator) -> Ints:
        return rng.permutation(self.num_samples)


class BlockOrder(SampleOrder):
    """Permutations of whole shards, and of the samples within blocks of `BLOCK_SHARDS` shards: as exact as
    the others, but a step has samples of a few shards alone, which can be read as a whole.
    """

    def __init__(self, shards: Ints, seed: int) -> None:
        super().__init__(len(shards), seed)
        self._rows = np.argsort(shards, kind="stable")  # those of each shard together
        self._starts = np.flatnonzero(np.diff(shards[self._rows], prepend=-1))
        self._ends = np.append(self._starts[1:], len(shards))

    def _drawn(self, rng: np.random.Generator) -> Ints:
        shards = rng.permutation(len(self._starts))
        blocks = (shards[start : start + BLOCK_SHARDS] for start in range(0, len(shards), BLOCK_SHARDS))
        return np.concatenate([rng.permutation(self._samples(block)) for block in blocks])

    def _samples(self, shards: Ints) -> Ints:
        spans = zip(self._starts[shards].tolist(), self._ends[shards].tolist(), strict=True)
        return np.concatenate([self._rows[start:end] for start, end in spans])


class BalancedOrder(SampleOrder):
    """Samples drawn with replacement, all classes equally often on average."""

    def __init__(self, labels: Ints, seed: int) -> None:
        super().__init__(len(labels), seed)
        counts = np.bincount(labels)
        self._cumulative = np.cumsum(1 / counts[labels]) / np.count_nonzero(counts)

    def samples(self, start: int, count: int) -> tuple[Ints, Ints]:
        """Return as epochs the positions themselves: a rare sample occurs many times in one real epoch."""
        return np.arange(start, start + count), super().samples(start, count)[1]

    def _drawn(self, rng: np.random.Generator) -> Ints:
        indices = np.searchsorted(self._cumulative, rng.random(self.num_samples))
        return np.minimum(indices, self.num_samples - 1)  # rounding may keep the last sum below 1


def sample_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the generator of everything random about one sample in one epoch."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SAMPLE, epoch, index)))


def step_rng(seed: int, step: int) -> np.random.Generator:
    """Return the generator of everything random that the samples of one step share."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STEP, step)))


def mix_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the generator of how one sample is mixed with others. It is not that of the sample itself, which
    therefore looks the same, if it is not mixed, as without any mixing.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_MIX, epoch, index)))
