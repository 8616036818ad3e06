"""Random numbers that belong to a sample: the same in whatever batch, process or machine it comes up."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Ints

Draws = npt.NDArray[np.float64]
"""(n, num) in [0, 1): a row for each sample."""

_Words = npt.NDArray[np.uint64]

_STEP: Final = np.uint64(
    0x9E3779B97F4A7C15
)  # between the states of splitmix64 (Steele et al. 2014, figure 17)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_WORD: Final = (1 << 64) - 1


def draws(seed: int, epoch: int | Ints, indices: Ints, num: int, *, stream: int = 0) -> Draws:
    """`num` numbers for each of the samples with these indices (n,), in one epoch or in (n,) epochs.

    They depend on nothing else, and fewer are the beginning of more. What is drawn for different purposes
    comes from different streams.
    """
    states = np.zeros(len(indices), dtype=np.uint64)
    for part in (seed & _WORD, stream, epoch, indices):
        states = _scramble(states + _STEP + np.asarray(part).astype(np.uint64))
    words = _scramble(states[:, None] + _STEP * np.arange(1, num + 1, dtype=np.uint64))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _scramble(words: _Words) -> _Words:
    """The mixing function of splitmix64: all bits of a word change all bits of the result."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))
