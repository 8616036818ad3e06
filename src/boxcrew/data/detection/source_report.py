"""The contents of a data set as JSON, for `boxcrew data` and the report of a run."""

from __future__ import annotations

from typing import Any

from boxcrew.data.detection.records import Records
from boxcrew.data.detection.source import Source


def source_report(source: Source) -> dict[str, Any]:
    """Return what a data set holds, and what is wrong with it, as JSON values."""
    return {
        "root": str(source.root),
        "format": source.format,
        "classes": list(source.classes),
        "splits": {name: _split_report(source.split(name), source.classes) for name in source.splits},
        "problems": [problem.to_json() for problem in source.problems],
    }


def _split_report(records: Records, classes: tuple[str, ...]) -> dict[str, Any]:
    counts, labels = records.counts, records.label_counts(len(classes))
    return {
        "images": len(records),
        "boxes": int(counts.sum()),
        "images_without_boxes": int((counts == 0).sum()),
        "boxes_by_class": dict(zip(classes, labels.tolist(), strict=True)),
    }
