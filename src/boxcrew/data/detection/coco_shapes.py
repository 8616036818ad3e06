"""Boxes of COCO annotations: `bbox` or, where a tool wrote only a segmentation, the box around it."""

from __future__ import annotations

import math

import numpy as np

from boxcrew.data.checks.box_repair import Box


def box_of_bbox(xywh: object) -> Box | None:
    """Convert COCO's x, y, width, height to xyxy; None if it is not four numbers."""
    try:
        x, y, width, height = map(float, xywh if isinstance(xywh, list) else ())
    except (TypeError, ValueError, OverflowError):
        return None
    return x, y, x + width, y + height


def box_of_segmentation(segmentation: object) -> Box | None:
    """Return the box around polygons (a list of x, y, x, y, … or several) or around a mask of run lengths;
    None if it is neither.
    """
    try:
        if isinstance(segmentation, dict):
            return _box_of_mask(segmentation["size"], segmentation["counts"])
        return _box_of_polygons(segmentation) if isinstance(segmentation, list) else None
    except (TypeError, ValueError, OverflowError, KeyError, RuntimeError):
        return None


def _box_of_polygons(polygons: list[object]) -> Box | None:
    parts = polygons if polygons and isinstance(polygons[0], list) else [polygons]
    points = np.concatenate([np.array(part, dtype=np.float64).reshape(-1, 2) for part in parts])
    if len(points) < 2:
        return None
    (x0, y0), (x1, y1) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    return x0, y0, x1, y1


def _box_of_mask(size: object, counts: object) -> Box | None:
    """Return the box of a mask of `size` (height, width), which is stored column by column as the lengths of
    runs without and with the object in turn, or as the text that COCO compresses them to.
    """
    from faster_coco_eval.core import mask  # takes a while to import, and few sets need it

    height, width = map(int, size if isinstance(size, list) else ())
    if min(height, width) < 1:
        return None
    if isinstance(counts, list):
        if min(counts, default=-1) < 0 or sum(counts) != height * width:
            return None
        counts = mask.frPyObjects({"size": [height, width], "counts": counts}, height, width)["counts"]
    x, y, across, down = map(float, mask.toBbox([{"size": [height, width], "counts": counts}])[0])
    inside = 0 <= x <= x + across <= width and 0 <= y <= y + down <= height
    return (x, y, x + across, y + down) if inside and math.isfinite(across * down) else None
