"""The choice of candidates with arrays alone, for engines that give every box, and the ranks of scores.

Both keep what `nets.static` and detectors keep.
"""

from __future__ import annotations

import math

import numpy as np

from boxcrew.core.types import Floats, Ints
from boxcrew.runtime.model_info import CandidateRule

# As in `nets.static`.
_STEPS = 4096
_MARGIN = 2  # ranks, of which rounding needs one
_LOWEST, _HIGHEST = np.float32(2.0**-20), np.float32(1 - 2.0**-13)


def score_ranks(scores: Floats) -> Ints:
    """Return ranks of probabilities, the higher the better; those that nearly agree have the same."""
    limited = np.clip(scores, _LOWEST, _HIGHEST)
    ranks: Ints = np.rint(np.log(limited / (1 - limited)) * _STEPS).astype(np.int64)
    return ranks


def below_rank(score: float) -> float:
    """Return a score a little below all that have the same rank as this one."""
    if score <= _LOWEST:
        return 0.0
    limited = min(score, float(_HIGHEST))
    logit = math.log(limited / (1 - limited)) - _MARGIN / _STEPS
    return 1 / (1 + math.exp(-logit))


def choose_candidates(boxes: Floats, scores: Floats, rule: CandidateRule) -> tuple[Floats, Floats, Ints]:
    """Return boxes (K, 4) clipped to the input, scores (K,) and labels (K,) of the best of N `boxes` (N, 4)
    with the `scores` (N, C) of all classes.
    """
    num_classes = scores.shape[1]
    if rule.each == "class":
        chosen = np.argsort(-score_ranks(scores), axis=0, kind="stable")[: rule.count]
        index = (chosen * num_classes + np.arange(num_classes)).reshape(-1)
    else:
        index = np.argsort(-score_ranks(scores.reshape(-1)), kind="stable")[: rule.count]
    return (
        np.clip(boxes[index // num_classes], 0, rule.side),
        scores.reshape(-1)[index],
        index % num_classes,
    )
