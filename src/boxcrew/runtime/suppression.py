"""Non-maximum suppression with arrays alone, which keeps what `nets.static.nms_top_k` keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Detections, Floats, Ints
from boxcrew.runtime.choice import score_ranks

_Exact = npt.NDArray[np.float64]

_BLOCK = 64  # boxes that are compared at once: more have not room in an integer, and most are not needed


def suppress(
    boxes: Floats, scores: Floats, labels: Ints, *, score_threshold: float, iou: float, most: int
) -> Detections:
    """Return the `most` best of N candidates with a score above the threshold, best first, without those that
    overlap a better one of their class by more than `iou`. `boxes` (N, 4) are xyxy; `scores` and `labels`
    are (N,).
    """
    likely = np.flatnonzero(scores > np.float32(score_threshold))
    order = likely[np.argsort(-score_ranks(scores[likely]), kind="stable")]
    kept = order[_best(boxes[order], labels[order], iou=iou, most=most)]
    kept = kept[np.argsort(-scores[kept], kind="stable")]
    return Detections(boxes=boxes[kept], scores=scores[kept], labels=labels[kept])


def _best(boxes: Floats, labels: Ints, *, iou: float, most: int) -> list[int]:
    """Return the indices to keep of boxes that are sorted, best first.

    A block of boxes is compared with those that are kept, then with itself; those behind the last one to keep
    are not looked at.
    """
    # In 64 bits as on the other side: overlaps near the limit must not differ.
    sides = np.ascontiguousarray(boxes.T, np.float64)
    exact = _Boxes(sides=sides, areas=(sides[2] - sides[0]) * (sides[3] - sides[1]), labels=labels)
    kept: list[int] = []
    with np.errstate(divide="ignore", invalid="ignore"):  # of empty boxes, which overlap nothing
        for start in range(0, len(boxes), _BLOCK):
            index = np.arange(start, min(start + _BLOCK, len(boxes)))
            if kept:
                better = exact.at(np.array(kept))
                index = index[~_overlaps(exact.at(index), better, iou=iou).any(axis=1)]
            block = exact.at(index)
            kept += index[_first_best(_overlaps(block, block, iou=iou))].tolist()
            if len(kept) >= most:
                break
    return kept[:most]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Boxes:
    """Boxes as they are compared."""

    sides: _Exact  # (4, N) xyxy
    areas: _Exact  # (N,)
    labels: Ints  # (N,)

    def at(self, index: Ints) -> _Boxes:
        """Return some of the boxes."""
        return _Boxes(
            sides=self.sides.take(index, axis=1), areas=self.areas.take(index), labels=self.labels.take(index)
        )


def _overlaps(first: _Boxes, second: _Boxes, *, iou: float) -> Bools:
    """Return for A boxes and B others which pairs overlap by more than `iou`: (A, B)."""
    shared = _shared(first.sides, second.sides)
    union = first.areas[:, None] + second.areas
    union -= shared
    overlap: Bools = np.divide(shared, union, out=shared) > iou
    overlap &= first.labels[:, None] == second.labels
    return overlap


def _shared(first: _Exact, second: _Exact) -> _Exact:
    """Return the areas (A, B) that boxes (4, A) and (4, B) have in common."""
    sides = np.minimum(first[2:, :, None], second[2:, None])
    sides -= np.maximum(first[:2, :, None], second[:2, None])
    np.maximum(sides, 0, out=sides)
    shared: _Exact = np.multiply(sides[0], sides[1], out=sides[0])
    return shared


def _first_best(overlaps: Bools) -> list[int]:
    """Return the boxes of a block that no better one which is kept overlaps, from their `overlaps` (N, N)."""
    bits = np.zeros((len(overlaps), _BLOCK // 8), np.uint8)
    packed = np.packbits(overlaps, axis=1, bitorder="little")
    bits[:, : packed.shape[1]] = packed
    kept, gone = [], 0  # a bit for each box
    for index, row in enumerate(bits.view("<u8")[:, 0].tolist()):
        if not gone >> index & 1:
            kept.append(index)
            gone |= row
    return kept
