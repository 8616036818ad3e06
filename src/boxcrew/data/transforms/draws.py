"""Random numbers that belong to a sample: the same in every batch, in every process, on every machine."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Ints

Draws = npt.NDArray[np.float64]
"""(n, num) in [0, 1): a row for each sample."""

_Words = npt.NDArray[np.uint64]

# The step between states, and the two multipliers, of splitmix64 (Steele et al. 2014, figure 17).
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_WORD: Final = (1 << 64) - 1
_SAMPLE_STREAM: Final = 1 << 32  # far from the streams of augmentations


def draws(seed: int, epoch: int | Ints, indices: Ints, num: int, *, stream: int = 0) -> Draws:
    """Return `num` numbers for each of the samples with these indices (n,), in one epoch or in (n,) epochs.

    They depend on the arguments alone, and a smaller `num` gives the first of the same numbers. Each purpose
    has its own `stream`.
    """
    states = _states(seed, epoch, indices, stream)
    words = _scramble(states[:, None] + _STEP * np.arange(1, num + 1, dtype=np.uint64))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample_draws(seed: int, epochs: Ints, indices: Ints) -> Ints:
    """Return `Batch.draws` (n,) of samples with these epochs (n,) and indices (n,): one integer of at least 0
    each, from which a network makes the random choices that only it can make.
    """
    return (_states(seed, epochs, indices, _SAMPLE_STREAM) >> np.uint64(1)).astype(np.int64)


def _states(seed: int, epoch: int | Ints, indices: Ints, stream: int) -> _Words:
    states = np.zeros(len(indices), dtype=np.uint64)
    for word in (seed & _WORD, stream, epoch, indices):
        states = _scramble(states + _STEP + np.asarray(word).astype(np.uint64))
    return states


def _scramble(words: _Words) -> _Words:
    """Apply the mixing function of splitmix64: every bit of a word affects every bit of the result."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
