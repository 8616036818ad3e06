"""Augmentation of sequences of tokens."""

from __future__ import annotations

import numpy as np

from boxcrew.core.types import PADDING, Ints
from boxcrew.data.transforms.draws import Draws


def drop_tokens(tokens: Ints, draws: Draws, *, p: float, mask: int) -> Ints:
    """Return tokens (n, T), all but padding (0) replaced by `mask` with probability `p`; `draws` (n, T)."""
    return np.where((draws < p) & (tokens != PADDING), np.int64(mask), tokens)
