"""Writer of LabelMe: a folder for each split, with a JSON file beside each image, and `classes.txt`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.writers import WRITERS, ImageWriter, write_classes

_VERSION = "5.5.0"  # of LabelMe, whose files have had this structure for years


@WRITERS.register("labelme")
def write_labelme(source: Source, out: Path, images: ImageWriter) -> tuple[Problem, ...]:
    """Write LabelMe. Its flags of shapes, which a project is free to name, are `difficult` and `crowd`."""
    write_classes(out, source.classes)
    for split, records in source.splits.items():
        for record in records:
            name = images.write(record, out / split)
            content: dict[str, Any] = {
                "version": _VERSION,
                "flags": {},
                "shapes": list(_shapes(record, source.classes)),
                "imagePath": name,
                "imageData": None,
                "imageHeight": record.height,
                "imageWidth": record.width,
            }
            text = json.dumps(content, ensure_ascii=False, indent=2)
            (out / split / f"{images.stems[record.key]}.json").write_text(text, encoding="utf-8")
    return ()


def _shapes(record: Record, classes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    target = record.target
    rows = zip(target.boxes, target.labels, target.difficult, target.crowd, strict=True)
    for box, label, difficult, crowd in rows:
        x0, y0, x1, y1 = box.tolist()
        flags = {name: True for name, is_set in (("difficult", difficult), ("crowd", crowd)) if is_set}
        yield {
            "label": classes[label],
            "points": [[x0, y0], [x1, y1]],
            "group_id": None,
            "description": "",
            "shape_type": "rectangle",
            "flags": flags,
            "mask": None,
        }
