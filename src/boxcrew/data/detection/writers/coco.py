"""Writer of COCO: `annotations/instances_<split>.json` and `images/<split>/`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.writers import WRITERS, ImageWriter


@WRITERS.register("coco")
def write_coco(source: Source, out: Path, images: ImageWriter) -> tuple[Problem, ...]:
    """Write COCO. `difficult`, which COCO does not have, becomes an extra field where it is set."""
    (out / "annotations").mkdir()
    categories = [{"id": i, "name": name} for i, name in enumerate(source.classes, 1)]
    for split, records in source.splits.items():
        listed, annotations, numbers = list[Any](), list[Any](), itertools.count(1)
        for image_id, record in enumerate(records, 1):
            name = images.write(record, out / "images" / split)
            listed.append({"id": image_id, "file_name": name, "width": record.width, "height": record.height})
            annotations += _annotations(record, image_id, numbers)
        content = {"images": listed, "annotations": annotations, "categories": categories}
        file = out / "annotations" / f"instances_{split}.json"
        file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return ()


def _annotations(record: Record, image_id: int, numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    target = record.target
    rows = zip(target.boxes, target.labels, target.difficult, target.crowd, strict=True)
    for box, label, difficult, crowd in rows:
        x0, y0, x1, y1 = box.tolist()
        ids = {"id": next(numbers), "image_id": image_id, "category_id": int(label) + 1}
        shape = {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0), "iscrowd": int(crowd)}
        yield {**ids, **shape, **({"difficult": 1} if difficult else {})}
