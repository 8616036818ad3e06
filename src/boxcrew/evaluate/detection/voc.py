"""Average precision of one class by both definitions of Pascal VOC."""

from __future__ import annotations

import numpy as np

from boxcrew.evaluate.detection.curves import precision_at_recall, precision_recall
from boxcrew.evaluate.detection.matches import ClassMatches


def voc07_ap(class_matches: ClassMatches) -> float | None:
    """Return the mean of the best precision at recall 0, 0.1, ... 1 (VOC 2007); None without objects."""
    if not class_matches.num_objects:
        return None
    return float(precision_at_recall(class_matches, np.arange(11) / 10).mean())


def voc12_ap(class_matches: ClassMatches) -> float | None:
    """Return the area under the best precision at each recall or higher (since VOC 2010); None as above."""
    if not class_matches.num_objects:
        return None
    precision, recall = precision_recall(class_matches)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * best))
