"""Parses the regions of Label Studio's annotations into objects with boxes in fractions of the image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.annotations import Collector, Object
from boxcrew.data.detection.named import NamedObject
from boxcrew.data.detection.shapes import (
    Point,
    bounding_box,
    corners,
    ellipse_box,
    parse_number,
    parse_points,
    rotate,
)

Region = Mapping[str, Any]
"""One result of an annotation, its fields and those of its value in one dictionary."""

_RECTANGLE = ("x", "y", "width", "height")


def parse_regions(
    regions: Sequence[Region], at: str, file: str, collector: Collector
) -> tuple[tuple[NamedObject, ...], tuple[int, int] | None]:
    """Return the objects and the annotated size of the image. A region with several labels is an object of
    each. What is about the whole image, such as a choice or a rating, is ignored.
    """
    objects: list[NamedObject] = []
    labeled = {_identity(region) for region in regions if _labels(region)}
    for number, region in enumerate(regions, 1):
        names = _labels(region)
        where = f"{at} region {number} ({', '.join(names) or 'no label'})"
        kind = _kind(region)
        if kind is None:
            if names:
                shape = str(region.get("type") or "shape").removesuffix("labels")
                collector.leave_out("not-a-box", file, f"{shape} has no box", at=where, value=shape)
        elif names:
            objects += _objects(region, kind, names, where, file, collector)
        elif _identity(region) not in labeled:  # otherwise the shape is listed again, with its label
            collector.leave_out("unknown-class", file, "has no label", at=where)
    sizes = filter(None, map(_size, regions))
    return tuple(objects), next(sizes, None)


def _labels(region: Region) -> list[str]:
    lists = [value for key, value in region.items() if key.endswith("labels") and isinstance(value, list)]
    return [name for name in (str(label).strip() for labels in lists for label in labels) if name]


def _identity(region: Region) -> object:
    return str(region.get("id") or [region.get(key) for key in (*_RECTANGLE, "points", "radiusX")])


def _kind(region: Region) -> str | None:
    """Return the kind of shape that the region is by its fields, or None if it is none with a box."""
    if "points" in region:
        return "polygon"
    if "radiusX" in region:
        return "ellipse"
    return "rectangle" if all(key in region for key in _RECTANGLE) else None


def _objects(
    region: Region, kind: str, names: list[str], at: str, file: str, collector: Collector
) -> Iterator[NamedObject]:
    try:
        box = _box(region, kind)
    except ValueError as error:
        collector.leave_out("box-malformed", file, f"{kind} is damaged: {error}", at=at, value=str(error))
        return
    meta = region.get("meta")
    words = meta.get("text") if isinstance(meta, dict) else None
    words = words if isinstance(words, list) else []
    for name in names:
        yield name, Object(at=at, box=box, label=-1, difficult="difficult" in words, crowd="crowd" in words)


def _box(region: Region, kind: str) -> Box:
    """Return the bounding box in fractions of the image; Label Studio writes percent."""
    if region.get("image_rotation"):
        raise ValueError(f"it was drawn on the image rotated by {region['image_rotation']} degrees")
    degrees = parse_number(region.get("rotation") or 0)
    width, height = _size(region) or (0, 0)
    if degrees and not width:
        raise ValueError("it is rotated, and original_width or original_height is missing")
    # Angles are meant in pixels. Without a rotation the unit does not matter.
    width, height = width or 1, height or 1
    if kind == "polygon":
        points = [_scaled(point, width, height) for point in parse_points(region["points"])]
        box = bounding_box(points)
    elif kind == "ellipse":
        center, radii = _pair(region, "x", "y"), _pair(region, "radiusX", "radiusY")
        box = ellipse_box(_scaled(center, width, height), _scaled(radii, width, height), degrees)
    else:
        x0, y0 = _scaled(_pair(region, "x", "y"), width, height)
        across, down = _scaled(_pair(region, "width", "height"), width, height)
        box = (x0, y0, x0 + across, y0 + down)
        if degrees:
            box = bounding_box(rotate(corners(box), degrees, (x0, y0)))
    x0, y0, x1, y1 = box
    return x0 / width, y0 / height, x1 / width, y1 / height


def _pair(region: Region, first: str, second: str) -> Point:
    values = []
    for key in (first, second):
        try:
            values.append(parse_number(region.get(key)))
        except ValueError:
            raise ValueError(f"{key} is {region.get(key)!r}") from None
    return values[0], values[1]


def _scaled(percent: Point, width: int, height: int) -> Point:
    return percent[0] / 100 * width, percent[1] / 100 * height


def _size(region: Region) -> tuple[int, int] | None:
    width, height = region.get("original_width"), region.get("original_height")
    if isinstance(width, int) and isinstance(height, int) and min(width, height) > 0:
        return width, height
    return None
