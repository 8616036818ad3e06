"""Parses the shapes of CVAT's XML into objects with boxes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.annotations import Collector, Object
from boxcrew.data.detection.named import NamedObject
from boxcrew.data.detection.shapes import Point, bounding_box, corners, ellipse_box, parse_number, rotate

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_WITHOUT_BOX = frozenset({"polyline", "points", "skeleton"})
_WITH_BOX = frozenset({"box", "polygon", "ellipse", "mask", "cuboid"})


def parse_shape(item: Element, label: str, at: str, file: Path, collector: Collector) -> NamedObject | None:
    """Return a shape with its label. A tag of the whole image is no shape and is ignored; what cannot be used
    is left out with a problem.
    """
    name, where, tag = label.strip(), collector.relative_path(file), item.tag
    at = f"{at} ({name or 'no label'})"
    if tag in _WITHOUT_BOX:
        collector.leave_out("not-a-box", where, f"{tag} has no box", at=at, value=tag)
    elif tag in _WITH_BOX:
        try:
            box = _box(item)
        except ValueError as error:
            collector.leave_out("box-malformed", where, f"{tag} is damaged: {error}", at=at, value=str(error))
            return None
        if name:
            difficult, crowd = _is_set(item, "difficult"), _is_set(item, "is_crowd")
            return name, Object(at=at, box=box, label=-1, difficult=difficult, crowd=crowd)
        collector.leave_out("unknown-class", where, "has no label", at=at)
    return None


def _is_set(item: Element, name: str) -> bool:
    values = (child.text for child in item.iterfind("attribute") if child.get("name") == name)
    return (next(values, "") or "").strip().lower() in {"true", "1", "yes"}


def _box(item: Element) -> Box:
    if item.tag == "polygon":
        return bounding_box(_points(item.get("points", "")))
    if item.tag == "cuboid":  # its two faces have four corners each
        names = [f"{corner}{face}" for corner in ("tl", "bl", "tr", "br") for face in (1, 2)]
        return bounding_box([(_number(item, f"x{name}"), _number(item, f"y{name}")) for name in names])
    degrees = _number(item, "rotation", "0")
    if item.tag == "ellipse":
        center, radii = (_number(item, "cx"), _number(item, "cy")), (_number(item, "rx"), _number(item, "ry"))
        return ellipse_box(center, radii, degrees)
    if item.tag == "mask":
        left, top, width, height = (_number(item, name) for name in ("left", "top", "width", "height"))
        return left, top, left + width, top + height
    x0, y0, x1, y1 = (_number(item, name) for name in ("xtl", "ytl", "xbr", "ybr"))
    if not degrees:
        return x0, y0, x1, y1
    return bounding_box(rotate(corners((x0, y0, x1, y1)), degrees, ((x0 + x1) / 2, (y0 + y1) / 2)))


def _number(item: Element, name: str, default: str | None = None) -> float:
    text = item.get(name, default)
    try:
        return parse_number(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}") from None


def _points(text: str) -> list[Point]:
    points = []
    for pair in filter(None, text.split(";")):
        x, _, y = pair.partition(",")
        try:
            points.append((float(x), float(y)))
        except ValueError:
            raise ValueError(f"{pair!r} is not a point") from None
    if len(points) < 2:
        raise ValueError("it has fewer than two points")
    return points
