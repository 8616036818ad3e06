"""Writer of YOLO: `images/<split>/`, `labels/<split>/` and Ultralytics' `data.yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.writers import WRITERS, ImageWriter, lost_flags


@WRITERS.register("yolo")
def write_yolo(source: Source, out: Path, images: ImageWriter) -> tuple[Problem, ...]:
    """Write YOLO. Without `path` in data.yaml, its folder is the root, for Ultralytics as well."""
    for split, records in source.splits.items():
        labels = out / "labels" / split
        labels.mkdir(parents=True)
        for record in records:
            images.write(record, out / "images" / split)
            (labels / f"{images.stems[record.key]}.txt").write_text("".join(_lines(record)), encoding="utf-8")
    folders, names = {split: f"images/{split}" for split in source.splits}, dict(enumerate(source.classes))
    text = yaml.safe_dump({**folders, "names": names}, sort_keys=False, allow_unicode=True)
    (out / "data.yaml").write_text(text, encoding="utf-8")
    return lost_flags(source, out, "difficult", "crowd")


def _lines(record: Record) -> Iterator[str]:
    for box, label in zip(record.target.boxes.tolist(), record.target.labels.tolist(), strict=True):
        x0, y0, x1, y1 = box
        across, down = 2 * record.width, 2 * record.height
        numbers = (x0 + x1) / across, (y0 + y1) / down, 2 * (x1 - x0) / across, 2 * (y1 - y0) / down
        yield f"{label} {' '.join(f'{number:.10g}' for number in numbers)}\n"
