"""Compares an exported file with the network of torch on real samples; what differs is found before use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Detections
from boxcrew.core.units import counted

MAX_PIXELS = 0.01
"""How far a side of a box may be from that of torch."""

MAX_SCORE = 1e-4
"""How far a score or a probability may be from that of torch."""

MAX_UNDECIDED = 0.05
"""The share of samples whose result may depend on how torch rounds."""

_NEAR = 100 * MAX_SCORE  # farther apart, and more than a pixel, two boxes are not the same one


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The greatest differences between two lists of detections of one image."""

    pixels: float = 0.0
    score: float = 0.0
    unmatched: int = 0  # detections of one list that the other has not, and that are not at the limit

    @property
    def is_allowed(self) -> bool:
        return self.pixels <= MAX_PIXELS and self.score <= MAX_SCORE and not self.unmatched


def compare_detections(exported: Detections, torch: Detections, *, least: float, most: int) -> Difference:
    """Compare two lists of detections, of which those with a score near `least`, or near that of the last of
    `most`, may be in one of them alone.
    """
    edge = _edge(exported, [torch], least=least, most=most)
    free = np.ones(len(torch), dtype=np.bool_)
    pixels, score, unmatched = 0.0, 0.0, 0
    for box, own_score, label in zip(exported.boxes, exported.scores, exported.labels, strict=True):
        distances = np.abs(torch.boxes - box).max(axis=1, initial=0) + 1e9 * ~(free & (torch.labels == label))
        nearest = int(distances.argmin()) if len(distances) else -1
        if nearest < 0 or not (distances[nearest] <= 1 and abs(torch.scores[nearest] - own_score) <= _NEAR):
            unmatched += own_score > edge
            continue
        free[nearest] = False
        pixels = max(pixels, float(distances[nearest]))
        score = max(score, abs(float(torch.scores[nearest] - own_score)))
    unmatched += int((torch.scores[free] > edge).sum())
    return Difference(pixels=pixels, score=score, unmatched=int(unmatched))


def is_within(exported: Detections, lists: Sequence[Detections], *, least: float, most: int) -> bool:
    """Return whether the exported detections differ from torch's only where torch's own result depends on
    rounding: each is in one of the lists that torch gives when it rounds differently, and those that are in
    all of these lists are there.
    """
    edge = _edge(exported, lists, least=least, most=most)
    is_found = np.any([_contained(exported, each) for each in lists], axis=0)
    first, *others = lists
    is_certain = np.all([_contained(first, each) for each in others], axis=0)
    is_lost = is_certain & ~_contained(first, exported)
    return not ((exported.scores > edge) & ~is_found).any() and not ((first.scores > edge) & is_lost).any()


def _contained(detections: Detections, other: Detections) -> npt.NDArray[np.bool_]:
    """Return for each detection whether another list has it too, within the tolerances."""
    is_near = np.abs(detections.boxes[:, None] - other.boxes).max(axis=2) <= MAX_PIXELS
    is_near &= np.abs(detections.scores[:, None] - other.scores) <= MAX_SCORE
    is_near &= detections.labels[:, None] == other.labels
    is_found: npt.NDArray[np.bool_] = is_near.any(axis=1)
    return is_found


def _edge(exported: Detections, lists: Sequence[Detections], *, least: float, most: int) -> float:
    """Return the score up to which a detection may be missing from one of the lists."""
    is_full = len(exported) > 0 and any(len(each) == most for each in lists)
    last = min(float(each.scores[-1]) for each in (exported, *lists) if len(each)) if is_full else least
    return max(least, last) + MAX_SCORE


def max_undecided(num_samples: int) -> int:
    """Return the most samples that may be undecided."""
    return math.ceil(MAX_UNDECIDED * num_samples)


@dataclass(frozen=True, kw_only=True)
class Parity:
    """The result of a comparison over all samples."""

    num_samples: int
    num_same: int  # with those that are undecided
    num_undecided: int  # where torch's own result depends on how it rounds
    worst_pixels: float  # of sides of boxes; 0 where there are none
    worst_score: float
    differing: tuple[str, ...]  # the keys of some samples that differ

    @classmethod
    def of(cls, differences: Iterable[tuple[str, Difference]], *, num_undecided: int = 0) -> Parity:
        """Sum up the difference of each sample by its key; those that are undecided have none."""
        listed = list(differences)
        differing = [key for key, difference in listed if not difference.is_allowed]
        return cls(
            num_samples=len(listed),
            num_same=len(listed) - len(differing),
            num_undecided=num_undecided,
            worst_pixels=max((difference.pixels for _, difference in listed), default=0.0),
            worst_score=max((difference.score for _, difference in listed), default=0.0),
            differing=tuple(differing[:10]),
        )

    @property
    def holds(self) -> bool:
        is_decided = self.num_undecided <= max_undecided(self.num_samples)
        return self.num_same == self.num_samples > 0 and is_decided

    def sentence(self, noun: str) -> str:
        boxes = f"boxes at most {self.worst_pixels:.2g} px apart, " if self.worst_pixels else ""
        own = (
            f" ({self.num_undecided} where torch's own result depends on rounding)"
            if self.num_undecided
            else ""
        )
        return (
            f"{self.num_same} of {counted(self.num_samples, noun)} with the same result as torch{own}, "
            f"{boxes}scores at most {self.worst_score:.2g} apart"
        )

    def tree(self) -> Mapping[str, Any]:
        return asdict(self)
