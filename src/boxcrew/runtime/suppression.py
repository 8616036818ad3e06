"""Non-maximum suppression with arrays alone, which keeps what `nets.static.nms_top_k` keeps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Detections, Floats, Ints
from boxcrew.runtime.choice import score_ranks

_Exact = npt.NDArray[np.float64]

_BLOCK = 64  # boxes that are compared at once: fewer take more calls, of more most are not needed


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
    kept: list[int] = []
    for start in range(0, len(boxes), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(boxes)))
        if kept:
            block = block[~_overlaps(boxes, labels, (block, np.array(kept)), iou=iou).any(axis=1)]
        kept += block[_first_best(_overlaps(boxes, labels, (block, block), iou=iou))].tolist()
        if len(kept) >= most:
            break
    return kept[:most]


def _overlaps(boxes: Floats, labels: Ints, pairs: tuple[Ints, Ints], *, iou: float) -> Bools:
    """Return for two lists of indices (A,) and (B,) which pairs overlap by more than `iou`: (A, B)."""
    # In 64 bits as on the other side: overlaps near the limit must not differ.
    first, second = (np.ascontiguousarray(boxes[index].T, np.float64) for index in pairs)
    shared = _shared(first, second)
    union = _areas(first)[:, None] + _areas(second)
    union -= shared
    with np.errstate(divide="ignore", invalid="ignore"):  # of empty boxes, which overlap nothing
        overlap: Bools = np.divide(shared, union, out=shared) > iou
    overlap &= labels[pairs[0], None] == labels[pairs[1]]
    return overlap


def _shared(first: _Exact, second: _Exact) -> _Exact:
    """Return the areas (A, B) that boxes (4, A) and (4, B) have in common."""
    sides = np.minimum(first[2:, :, None], second[2:, None])
    sides -= np.maximum(first[:2, :, None], second[:2, None])
    np.maximum(sides, 0, out=sides)
    shared: _Exact = np.multiply(sides[0], sides[1], out=sides[0])
    return shared


def _areas(boxes: _Exact) -> _Exact:
    areas: _Exact = (boxes[2] - boxes[0]) * (boxes[3] - boxes[1])
    return areas


def _first_best(overlaps: Bools) -> list[int]:
    """Return the boxes of a block that no better one which is kept overlaps, from their `overlaps` (N, N)."""
    rows = np.packbits(overlaps, axis=1, bitorder="little")
    kept, gone = [], 0  # a bit for each box
    for index, row in enumerate(rows):
        if not gone >> index & 1:
            kept.append(index)
            gone |= int.from_bytes(row.tobytes(), "little")
    return kept
