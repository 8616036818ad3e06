"""Reader of CVAT's own XML, versions 1.1 for images and for video.

The XML for video has tracks of boxes at the numbers of frames, which must be there as images with these
numbers, as CVAT writes them if it was asked to save the images.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import defusedxml.ElementTree

from boxcrew.core.errors import DataError
from boxcrew.core.units import counted
from boxcrew.data.detection.annotations import Collector
from boxcrew.data.detection.cvat_shapes import parse_shape
from boxcrew.data.detection.named import NamedAnnotation, NamedObject, NamedSource
from boxcrew.data.detection.safe_xml import XML_ERRORS, parse_xml, xml_problem_kind
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import (
    beginning_of,
    files_below,
    first_files,
    split_of_file,
    split_of_folder,
    split_of_path,
)
from boxcrew.data.images.reading import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_LABELS_WITHOUT_BOX = frozenset({"tag", "polyline", "points", "skeleton"})
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


@SOURCES.register("cvat")
class CvatSource(NamedSource):
    """A CVAT data set. Polygons, ellipses, masks, cuboids and rotated boxes become their bounding boxes.
    Subsets are the splits. The attributes `difficult` and `is_crowd` are kept, `occluded` is ignored.
    """

    format = "cvat"
    expects = "annotations.xml of CVAT for images, or for video with the frames as images"

    @classmethod
    def detect(cls, path: Path) -> bool:
        files = [path] if path.is_file() else first_files(path, ".xml", depth=1)
        return any(map(_looks_like_cvat, files))

    @classmethod
    def root_of(cls, path: Path) -> Path:
        if not _files(path):
            raise cls.not_found(path, "is not a CVAT data set")
        return path.parent if path.is_file() else path

    @classmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        for file in _files(path):
            try:
                tree = parse_xml(file.read_bytes())
            except XML_ERRORS as error:
                message = f"cannot be parsed: {error}"
                collector.leave_out(xml_problem_kind(error), collector.relative_path(file), message)
                continue
            if tree.find("track") is None:
                yield from _images(tree, file, collector)
            else:
                yield from _frames(tree, file, collector)

    @classmethod
    def declared_classes(cls, path: Path) -> tuple[str, ...]:
        names = itertools.chain.from_iterable(map(_label_names, _files(path)))
        return tuple(dict.fromkeys(names))


def _looks_like_cvat(file: Path) -> bool:
    start = beginning_of(file) if file.suffix.lower() == ".xml" else b""
    return b"<annotations" in start and any(tag in start for tag in (b"<meta", b"<image", b"<track"))


def _files(path: Path) -> list[Path]:
    return [
        file for file in ([path] if path.is_file() else files_below(path, {".xml"})) if _looks_like_cvat(file)
    ]


def _label_names(file: Path) -> list[str]:
    """Return the labels of objects that the beginning of a file declares."""
    try:
        for _, element in defusedxml.ElementTree.iterparse(file):
            if element.tag == "meta":
                return list(filter(None, map(_label_name, element.iterfind(".//labels/label"))))
            if element.tag in {"image", "track"}:
                break
    except XML_ERRORS:  # which `parse` reports
        pass
    return []


def _label_name(label: Element) -> str:
    """Return the name of a label; nothing if it is not for objects with boxes."""
    is_part = label.find("parent") is not None  # of a skeleton
    return (
        ""
        if is_part or label.findtext("type") in _LABELS_WITHOUT_BOX
        else (label.findtext("name") or "").strip()
    )


def _images(tree: Element, file: Path, collector: Collector) -> Iterator[NamedAnnotation]:
    task_subset = tree.findtext("meta//subset") or ""
    file_split = (
        split_of_folder(task_subset) or split_of_file(file.stem) or split_of_path(file, collector.root)
    )
    for number, image in enumerate(tree.iterfind("image"), 1):
        name, subset = image.get("name", ""), image.get("subset") or ""
        at = f"image {name or number}"
        if not name:
            message = "has no name"
            collector.leave_out("unreadable-annotation", collector.relative_path(file), message, at=at)
            continue
        folder = file.parent / "images"
        yield NamedAnnotation(
            file=file,
            at=at,
            image=name,
            folders=(folder / subset, folder) if subset else (folder,),
            objects=tuple(_objects(image, at, file, collector)),
            size=_size(image.get("width"), image.get("height")),
            split=split_of_folder(subset) or file_split,
        )


def _objects(parent: Element, at: str, file: Path, collector: Collector) -> Iterator[NamedObject]:
    for number, item in enumerate(parent, 1):
        if named := parse_shape(item, item.get("label", ""), f"{at} {item.tag} {number}", file, collector):
            yield named


def _size(width: str | None, height: str | None) -> tuple[int, int] | None:
    try:
        return int(width or 0), int(height or 0)
    except ValueError:
        return None


def _frames(tree: Element, file: Path, collector: Collector) -> Iterator[NamedAnnotation]:
    """Yield the frames that are there as images. Those between objects are background."""
    objects = _objects_by_frame(tree, file, collector)
    images = _numbered_images(file)
    if not images.keys() & objects.keys():
        frames = counted(len(objects), "annotated frame")
        message = f"{file}: is about a video, and none of its {frames} is there as an image"
        advice = "export it with images saved, or save the frames as images/frame_000000.png and so on"
        raise DataError(message, advice=advice)
    last = max(objects)
    size = _size(tree.findtext("meta//original_size/width"), tree.findtext("meta//original_size/height"))
    split = split_of_folder(tree.findtext("meta//subset") or "") or split_of_file(file.stem)
    for frame in sorted(objects.keys() | {number for number in images if number <= last}):
        at = f"frame {frame}"
        if frame in images:
            image, named = images[frame], tuple(objects.get(frame, ()))
            folders = (image.parent,)
            yield NamedAnnotation(
                file=file, at=at, image=image.name, folders=folders, objects=named, size=size, split=split
            )
        else:
            message = "has no image"
            collector.leave_out(
                "missing-file", collector.relative_path(file), message, at=at, value=str(frame)
            )


def _objects_by_frame(tree: Element, file: Path, collector: Collector) -> dict[int, list[NamedObject]]:
    objects: dict[int, list[NamedObject]] = defaultdict(list)
    for number, track in enumerate(tree.iterfind("track"), 1):
        for item in track:
            if item.get("outside") == "1":
                continue
            at, frame = f"track {number} frame {item.get('frame')}", item.get("frame", "")
            if not frame.isdecimal():
                message = f"frame is {frame!r}, not a number"
                collector.leave_out("unreadable-annotation", collector.relative_path(file), message, at=at)
            elif named := parse_shape(item, track.get("label", ""), at, file, collector):
                objects[int(frame)].append(named)
    return objects


def _numbered_images(file: Path) -> dict[int, Path]:
    """Return the images of frames by the last number in their names."""
    folder = file.parent / "images"
    images = files_below(folder if folder.is_dir() else file.parent, IMAGE_SUFFIXES)
    return {int(match[0]): image for image in reversed(images) if (match := _LAST_NUMBER.search(image.stem))}
