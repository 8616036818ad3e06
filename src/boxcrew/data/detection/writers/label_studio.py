"""Writer of Label Studio: `label_studio.json`, `images/<split>/` and `classes.txt`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.data.detection.writers import WRITERS, ImageWriter, write_classes


@WRITERS.register("label_studio")
def write_label_studio(source: Source, out: Path, images: ImageWriter) -> tuple[Problem, ...]:
    """Write Label Studio. Images are named as it names local files, relative to the folder of the set;
    `difficult` and `crowd` are texts about a region.
    """
    write_classes(out, source.classes)
    tasks = list[Any]()
    for split, records in source.splits.items():
        for record in records:
            name = images.write(record, out / "images" / split)
            url = f"/data/local-files/?d={quote(f'images/{split}/{name}')}"
            annotation = {"result": list(_results(record, source.classes)), "was_cancelled": False}
            tasks.append({"id": len(tasks) + 1, "data": {"image": url}, "annotations": [annotation]})
    text = json.dumps(tasks, ensure_ascii=False, indent=1)
    (out / "label_studio.json").write_text(text, encoding="utf-8")
    return ()


def _results(record: Record, classes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    target = record.target
    rows = zip(target.boxes, target.labels, target.difficult, target.crowd, strict=True)
    for number, (box, label, difficult, crowd) in enumerate(rows, 1):
        x0, y0, x1, y1 = box.tolist()
        across, down = 100 / record.width, 100 / record.height
        sides = {"x": x0 * across, "y": y0 * down, "width": (x1 - x0) * across, "height": (y1 - y0) * down}
        words = [name for name, is_set in (("difficult", difficult), ("crowd", crowd)) if is_set]
        yield {
            "id": f"box{number}",
            "type": "rectanglelabels",
            "from_name": "label",
            "to_name": "image",
            "original_width": record.width,
            "original_height": record.height,
            "image_rotation": 0,
            "value": {**sides, "rotation": 0, "rectanglelabels": [classes[label]]},
            **({"meta": {"text": words}} if words else {}),
        }
