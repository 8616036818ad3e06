"""Non-maximum suppression with arrays alone, which keeps what `nets.static.nms_top_k` keeps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Detections, Floats, Ints
from boxcrew.runtime.choice import score_ranks


def suppress(
    boxes: Floats, scores: Floats, labels: Ints, *, score_threshold: float, iou: float, most: int
) -> Detections:
    """Return the `most` best of N candidates with a score above the threshold, best first, without those that
    overlap a better one of their class by more than `iou`. `boxes` (N, 4) are xyxy; `scores` and `labels`
    are (N,).
    """
    likely = np.flatnonzero(scores > np.float32(score_threshold))
    order = likely[np.argsort(-score_ranks(scores[likely]), kind="stable")]
    exact = boxes[order].astype(np.float64)  # as on the other side: overlaps near the limit must not differ
    kept = order[_best(exact, labels[order], iou=iou, most=most)]
    kept = kept[np.argsort(-scores[kept], kind="stable")]
    return Detections(boxes=boxes[kept], scores=scores[kept], labels=labels[kept])


def _best(boxes: npt.NDArray[np.float64], labels: Ints, *, iou: float, most: int) -> list[int]:
    """Return the indices to keep of boxes that are sorted, best first.

    The boxes of a class are put side by side, so that each box that is kept is compared with a short piece of
    the arrays.
    """
    order = np.argsort(labels, kind="stable")
    places = np.empty_like(order)  # of the boxes, in that order
    places[order] = np.arange(len(order))
    ends = np.searchsorted(labels[order], labels, side="right")  # of the class of each box, in that order
    low, high = np.ascontiguousarray(boxes[order, :2].T), np.ascontiguousarray(boxes[order, 2:].T)
    areas = (high[0] - low[0]) * (high[1] - low[1])
    alive = np.ones(len(boxes), dtype=np.bool_)
    kept: list[int] = []
    for index, (place, end) in enumerate(zip(places.tolist(), ends.tolist(), strict=True)):
        if not alive[place]:
            continue
        kept.append(index)
        if len(kept) == most:
            break
        rivals = slice(place + 1, end)
        sides = np.minimum(high[:, place, None], high[:, rivals])
        sides -= np.maximum(low[:, place, None], low[:, rivals])
        np.maximum(sides, 0, out=sides)
        shared = sides[0] * sides[1]
        union = areas[place] + areas[rivals] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        alive[rivals] &= ~(ratio > iou)
    return kept
