"""The contents of a data set as JSON, for `boxcrew data` and the report of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from boxcrew.data.detection.source import Record, Source


def source_report(source: Source) -> dict[str, Any]:
    """Return what a data set holds, and what is wrong with it, as JSON values."""
    return {
        "root": str(source.root),
        "format": source.format,
        "classes": list(source.classes),
        "splits": {name: _split_report(records, source.classes) for name, records in source.splits.items()},
        "problems": [problem.to_json() for problem in source.problems],
    }


def _split_report(records: tuple[Record, ...], classes: tuple[str, ...]) -> dict[str, Any]:
    labels = np.concatenate([record.target.labels for record in records])
    counts = np.bincount(labels, minlength=len(classes))
    return {
        "images": len(records),
        "boxes": len(labels),
        "images_without_boxes": sum(len(record.target) == 0 for record in records),
        "boxes_by_class": dict(zip(classes, counts.tolist(), strict=True)),
    }
