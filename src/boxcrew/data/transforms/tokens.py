"""Changes of sequences of tokens."""

from __future__ import annotations

import numpy as np

from boxcrew.core.types import PADDING, Ints
from boxcrew.data.transforms.draws import Draws


def drop_tokens(tokens: Ints, draws: Draws, *, p: float, mask: int) -> Ints:
    """(n, T) with each token replaced by `mask` with probability `p`, but for padding (0). `draws` (n, T)."""
    return np.where((draws < p) & (tokens != PADDING), np.int64(mask), tokens)
