"""Reader of Apple's Create ML: a JSON file that lists images with boxes given by their centers, in pixels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from boxcrew.data.detection.annotations import Collector, Object
from boxcrew.data.detection.json_files import items_of, numbers_of, read_json
from boxcrew.data.detection.named import NamedAnnotation, NamedObject, NamedSource
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import names_in, split_of_file, split_of_folder, split_of_path, suffix_of
from boxcrew.data.images.reading import read_start

_START_BYTES = 2**20
_IMAGE_KEYS, _LIST_KEYS = ("image", "imagefilename"), ("annotations", "annotation")
_MAX_JSON_FILES = 16  # a folder with more of them has one for each image


@SOURCES.register("create_ml")
class CreateMlSource(NamedSource):
    """A Create ML set: one JSON file in the folder of the images, or one in each of train, valid and test."""

    format = "create_ml"
    box_order = "cxcywh"
    expects = 'a .json file such as _annotations.createml.json, a list of {"image": …, "annotations": […]}'

    @classmethod
    def detect(cls, path: Path) -> bool:
        return bool(_find_files(path))

    @classmethod
    def root_of(cls, path: Path) -> Path:
        if not _find_files(path):
            raise cls.not_found(path, "has no Create ML annotations")
        return path.parent if path.is_file() else path

    @classmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        for file in _find_files(path):
            own = split_of_file(file.stem) or split_of_path(file, collector.root)
            split = None if path.is_file() else own
            annotations = (_parse(file, split, i, item, collector) for i, item in enumerate(read_json(file)))
            yield from (annotation for annotation in annotations if annotation)


def _find_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if suffix_of(path.name) == ".json" and _looks_like_create_ml(path) else []
    parents = [path, *(path / name for name in names_in(path) if split_of_folder(name))]
    by_folder = [
        [parent / name for name in names_in(parent) if suffix_of(name) == ".json"] for parent in parents
    ]
    files = (file for files in by_folder if len(files) <= _MAX_JSON_FILES for file in files)
    return [file for file in files if _looks_like_create_ml(file)]


def _looks_like_create_ml(file: Path) -> bool:
    try:
        start = read_start(file, _START_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False
    has_images = any(f'"{key}"'.encode() in start for key in _IMAGE_KEYS)
    # A file may begin with images that have no objects.
    return start.startswith(b"[") and has_images and (b'"coordinates"' in start or "createml" in file.name)


def _parse(
    file: Path, split: str | None, number: int, item: object, collector: Collector
) -> NamedAnnotation | None:
    at, relative = f"image number {number}", collector.relative_path(file)
    fields = item if isinstance(item, dict) else {}
    image = next((fields[key] for key in _IMAGE_KEYS if fields.get(key)), None)
    items = next((items_of(fields, key) for key in _LIST_KEYS if key in fields), [])
    if not isinstance(image, str) or items is None:
        message = f"is not an image with a list of annotations: {str(item)[:80]}"
        collector.leave_out("unreadable-annotation", relative, message, at=at)
        return None
    objects = [_object(f"{at}, object {i}", obj, relative, collector) for i, obj in enumerate(items, 1)]
    used = [obj for obj in objects if obj]
    return NamedAnnotation(file=file, at=at, image=image, objects=used, split=split)


def _object(at: str, item: object, file: str, collector: Collector) -> NamedObject | None:
    fields = item if isinstance(item, dict) else {}
    name, coordinates = str(fields.get("label") or "").strip(), fields.get("coordinates")
    sides = coordinates if isinstance(coordinates, dict) else {}
    numbers = numbers_of([sides.get(side) for side in ("x", "y", "width", "height")], 4)
    if numbers is None:
        message = f"coordinates are not x, y, width and height: {str(coordinates)[:80]}"
        collector.leave_out("box-malformed", file, message, at=at, value=str(coordinates)[:80])
        return None
    if not name:
        collector.leave_out("unknown-class", file, "has no label", at=at)
        return None
    x, y, width, height = numbers
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return name, Object(at=at, box=box, label=-1)
