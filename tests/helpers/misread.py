"""Detection sets on disk whose boxes are written in any unit and order, right or wrong for their format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.source import Source

SIZES = ((320, 240), (240, 320), (400, 250), (256, 300))
CLASSES = ("axle", "bolt", "cog")


@dataclass(frozen=True, kw_only=True)
class DrawnImage:
    """An image of a set, with its boxes as xyxy in pixels."""

    size: tuple[int, int]
    boxes: tuple[Box, ...]
    labels: tuple[int, ...]
    stated: tuple[int, int] | None = None  # the size to write into annotations, if not the real one


def draw_images(
    num: int = 16, *, seed: int = 0, sizes: Sequence[tuple[int, int]] = SIZES, boxes: int = 5
) -> list[DrawnImage]:
    """Return images with boxes of a tenth to a half of the image, anywhere, also at the very edges."""
    draw = np.random.default_rng(seed)
    images = []
    for number in range(num):
        size = np.array(sizes[number % len(sizes)])
        sides = np.maximum(draw.uniform(0.1, 0.5, (boxes, 2)) * size, 4)
        low = draw.uniform(0, 1, (boxes, 2)) * (size - sides)
        corners = np.concatenate([low, low + sides], axis=1).round(2)
        width, height = map(int, size)
        labels = tuple(draw.integers(0, len(CLASSES), boxes).tolist())
        images.append(
            DrawnImage(size=(width, height), boxes=tuple(map(_box, corners.tolist())), labels=labels)
        )
    return images


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = values
    return x0, y0, x1, y1


def written(box: Box, size: tuple[int, int], *, unit: str, order: str) -> Box:
    """Return the four numbers of a box (xyxy in pixels) in that unit and order."""
    scale = {"pixels": (1.0, 1.0), "fractions": size, "percent": (size[0] / 100, size[1] / 100)}[unit]
    x0, x1 = box[0] / scale[0], box[2] / scale[0]
    y0, y1 = box[1] / scale[1], box[3] / scale[1]
    values = {"x0": x0, "y0": y0, "x1": x1, "y1": y1, "w": x1 - x0, "h": y1 - y0}
    values |= {"cx": (x0 + x1) / 2, "cy": (y0 + y1) / 2}
    names = {
        "xyxy": "x0 y0 x1 y1",
        "xywh": "x0 y0 w h",
        "cxcywh": "cx cy w h",
        "yxyx": "y0 x0 y1 x1",
        "yxhw": "y0 x0 h w",
        "cycxhw": "cy cx h w",
    }[order]
    return _box([values[name] for name in names.split()])


def write_set(
    folder: Path,
    images: Sequence[DrawnImage],
    *,
    format: str,
    unit: str = "",
    order: str = "",
    first: int = 0,
) -> Path:
    """Write a set of that format, by default with the unit and order that the format has."""
    native = {"yolo": ("fractions", "cxcywh"), "voc": ("pixels", "xyxy"), "coco": ("pixels", "xywh")}[format]
    unit, order = unit or native[0], order or native[1]
    pictures = folder / ("JPEGImages" if format == "voc" else "images")
    pictures.mkdir(parents=True)
    rows = []
    for number, image in enumerate(images):
        (pictures / f"{number}.png").write_bytes(_blank(image.size))
        numbers = [written(box, image.size, unit=unit, order=order) for box in image.boxes]
        rows.append((replace(image, boxes=tuple(numbers)), [label + first for label in image.labels]))
    {"yolo": _write_yolo, "voc": _write_voc, "coco": _write_coco}[format](folder, rows)
    return folder


@lru_cache
def _blank(size: tuple[int, int]) -> bytes:
    return bytes(cv2.imencode(".png", np.zeros((size[1], size[0]), dtype=np.uint8))[1])


_Rows = Sequence[tuple[DrawnImage, Sequence[int]]]


def _write_yolo(folder: Path, rows: _Rows) -> None:
    (folder / "labels").mkdir()
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    for number, (image, labels) in enumerate(rows):
        lines = [
            " ".join([str(label), *(f"{value:.8g}" for value in box)])
            for box, label in zip(image.boxes, labels, strict=True)
        ]
        (folder / "labels" / f"{number}.txt").write_text("\n".join(lines) + "\n")


def _write_voc(folder: Path, rows: _Rows) -> None:
    (folder / "Annotations").mkdir()
    for number, (image, labels) in enumerate(rows):
        width, height = image.stated or image.size
        objects = [
            f"<object><name>{CLASSES[label]}</name><bndbox>"
            + "".join(
                f"<{side}>{value:.8g}</{side}>"
                for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
            )
            + "</bndbox></object>"
            for box, label in zip(image.boxes, labels, strict=True)
        ]
        size = f"<size><width>{width}</width><height>{height}</height></size>"
        text = f"<annotation><filename>{number}.png</filename>{size}{''.join(objects)}</annotation>"
        (folder / "Annotations" / f"{number}.xml").write_text(text)


def _write_coco(folder: Path, rows: _Rows) -> None:
    content: dict[str, list[dict[str, object]]] = {"images": [], "annotations": []}
    content["categories"] = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
    for number, (image, labels) in enumerate(rows):
        width, height = image.stated or image.size
        file = f"{number}.png"
        content["images"].append({"id": number, "file_name": file, "width": width, "height": height})
        for box, label in zip(image.boxes, labels, strict=True):
            row = {"id": len(content["annotations"]), "image_id": number, "category_id": label + 1}
            content["annotations"].append({**row, "bbox": list(box)})
    (folder / "annotations.json").write_text(json.dumps(content))


def boxes_of(source: Source) -> list[tuple[npt.NDArray[np.float32], list[int]]]:
    """Return the boxes and labels of all images, in the order in which they were written."""
    records = sorted(source.records, key=lambda record: int(Path(record.key).stem))
    return [(record.target.boxes, record.target.labels.tolist()) for record in records]
