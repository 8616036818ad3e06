"""The share of objects that proposals cover, which bounds what a detector that starts from them can find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from boxcrew.core.boxes import iou
from boxcrew.core.types import Floats
from boxcrew.data.detection.records import Record

_ENOUGH = 0.5  # of the objects, at IoU 0.5


@dataclass(frozen=True, kw_only=True)
class ProposalCoverage:
    """The number of proposals of images, and the share of their objects that one overlaps enough."""

    num_images: int
    num_objects: int
    mean_proposals: float  # of an image
    recall50: float  # share of the objects that a proposal overlaps by an IoU of 0.5 or more; 1 if none
    recall70: float

    def sentence(self) -> str:
        return (
            f"proposals: {self.mean_proposals:.0f} an image cover {self.recall50:.1%} of the boxes "
            f"(IoU 0.5; {self.recall70:.1%} at 0.7)"
        )

    def advice(self, *, count: str = "detector.proposals", method: str = "detector.proposal_method") -> str:
        """Return how many objects are covered and what to do for more; `count` and `method` are the names of
        the settings.
        """
        return (
            f"proposals cover {self.recall50:.0%} of the boxes: use more of them ({count}=2000), "
            f"{method}=quality, or a detector that needs none"
        )

    @property
    def is_poor(self) -> bool:
        """True if most objects cannot be found."""
        return self.recall50 < _ENOUGH


def proposal_coverage(records: Sequence[Record], regions: Callable[[Record], Floats]) -> ProposalCoverage:
    """Measure how well the regions of records cover the objects that count in an evaluation."""
    overlaps, num_proposals = [np.zeros(0)], 0
    for record in records:
        proposals, target = regions(record), record.target
        num_proposals += len(proposals)
        objects = target.boxes[~(target.difficult | target.crowd)]
        if len(objects):
            none = np.zeros((len(objects), 1))
            overlaps.append(np.concatenate((none, iou(objects, proposals)), axis=1).max(axis=1))
    best = np.concatenate(overlaps)
    return ProposalCoverage(
        num_images=len(records),
        num_objects=len(best),
        mean_proposals=num_proposals / max(1, len(records)),
        recall50=float((best >= 0.5).mean()) if len(best) else 1.0,
        recall70=float((best >= 0.7).mean()) if len(best) else 1.0,
    )
