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
    """Return the indices to keep of boxes that are sorted, best first."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    alive = np.ones(len(boxes), dtype=np.bool_)
    kept: list[int] = []
    for index in range(len(boxes)):
        if not alive[index]:
            continue
        kept.append(index)
        if len(kept) == most:
            break
        rivals = index + 1 + np.flatnonzero((alive & (labels == labels[index]))[index + 1 :])
        low = np.maximum(boxes[index, :2], boxes[rivals, :2])
        sides = np.maximum(np.minimum(boxes[index, 2:], boxes[rivals, 2:]) - low, 0)
        shared = sides[:, 0] * sides[:, 1]
        union = areas[index] + areas[rivals] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        alive[rivals[ratio > iou]] = False
    return kept
