"""Reader of LabelMe: a JSON file of labeled shapes for each image, mostly beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.annotations import Collector, Object
from boxcrew.data.detection.named import NamedAnnotation, NamedObject, NamedSource
from boxcrew.data.detection.shapes import bounding_box, ellipse_box, parse_points
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import ImageFinder, beginning_of, files_below, first_files

_WITH_AREA = frozenset({"rectangle", "polygon", "circle", "mask", "rotation"})


@SOURCES.register("labelme")
class LabelMeSource(NamedSource):
    """A LabelMe data set. Polygons, circles and masks become their bounding boxes; points and lines have
    none. Splits come from folders named train, val and test. Of the flags of a shape, `difficult` and `crowd`
    count.
    """

    format = "labelme"
    expects = "a LabelMe .json with shapes next to each image"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return path.is_dir() and any(map(_looks_like_labelme, first_files(path, ".json", depth=2)))

    @classmethod
    def root_of(cls, path: Path) -> Path:
        if not path.is_dir() or not files_below(path, {".json"}):
            raise cls.not_found(path, "is not a folder of LabelMe files")
        return path

    @classmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        finder = ImageFinder()
        for split, file in collector.assign_splits(files_below(path, {".json"})):
            if content := _read(file, collector):
                beside = finder.find([file.parent], file.stem)
                yield NamedAnnotation(
                    file=file,
                    image=str(content["imagePath"] or ""),
                    aliases=(beside.name,) if beside else (),
                    objects=tuple(_objects(content["shapes"], collector.relative_path(file), collector)),
                    size=_size(content),
                    split=split,
                )


def _looks_like_labelme(file: Path) -> bool:
    start = beginning_of(file)
    return start.startswith(b"{") and (b'"shapes"' in start or b'"imageData"' in start)


def _read(file: Path, collector: Collector) -> dict[str, Any] | None:
    relative = collector.relative_path(file)
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        collector.leave_out("unreadable-annotation", relative, f"cannot be parsed as JSON: {error}")
        return None
    if not isinstance(content, dict) or not isinstance(content.get("shapes"), list):
        collector.leave_out("unreadable-annotation", relative, "is not LabelMe: it has no list 'shapes'")
        return None
    return {"imagePath": None, **content}


def _objects(shapes: list[Any], file: str, collector: Collector) -> Iterator[NamedObject]:
    for number, shape in enumerate(shapes, 1):
        fields = shape if isinstance(shape, dict) else {}
        name = str(fields.get("label") or "").strip()
        at, kind = f"shape {number} ({name or 'no label'})", fields.get("shape_type") or "polygon"
        if kind not in _WITH_AREA:
            collector.leave_out("not-a-box", file, f"{kind} has no box", at=at, value=str(kind))
            continue
        try:
            box = _box(kind, fields.get("points"))
        except ValueError as error:
            value = str(fields.get("points"))[:80]
            collector.leave_out("box-malformed", file, f"{kind} is damaged: {error}", at=at, value=value)
            continue
        if name:
            flags = fields.get("flags")
            flags = flags if isinstance(flags, dict) else {}
            difficult, crowd = flags.get("difficult") is True, flags.get("crowd") is True
            yield name, Object(at=at, box=box, label=-1, difficult=difficult, crowd=crowd)
        else:
            collector.leave_out("unknown-class", file, "has no label", at=at)


def _box(kind: str, value: object) -> Box:
    points = parse_points(value)
    if kind == "circle":  # its center and a point of its edge
        radius = math.dist(points[0], points[1])
        return ellipse_box(points[0], (radius, radius))
    return bounding_box(points)


def _size(content: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = content.get("imageWidth"), content.get("imageHeight")
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None
