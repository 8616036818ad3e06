"""Reader of Supervisely projects: `meta.json` with the classes, and folders with `img/` and `ann/`."""

from __future__ import annotations

import base64
import binascii
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image as Pillow

from boxcrew.core.errors import DataError
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.detection.annotations import Collector, Object
from boxcrew.data.detection.json_files import items_of, numbers_of, read_json
from boxcrew.data.detection.named import NamedAnnotation, NamedObject, NamedSource
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import ImageFinder, files_below, names_in, split_of_path, stem_of, suffix_of
from boxcrew.data.images.reading import DECODING_FAULTS, IMAGE_SUFFIXES, MAX_PIXELS

_MAX_MASK_BYTES = 64 * 2**20  # of a mask as PNG; more is a bomb


@SOURCES.register("supervisely")
class SuperviselySource(NamedSource):
    """A Supervisely project, or one dataset of it. Datasets called train, val and test are the splits.
    Polygons and masks become their bounding boxes; points and lines have none.
    """

    format = "supervisely"
    expects = "meta.json beside folders with ann/*.json and img/"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return _is_dataset(path) or (
            (path / "meta.json").is_file() and any(_is_dataset(path / name) for name in names_in(path))
        )

    @classmethod
    def root_of(cls, path: Path) -> Path:
        if not cls.detect(path):
            raise cls.not_found(path, "is not a Supervisely project")
        return path

    @classmethod
    def declared_classes(cls, path: Path) -> tuple[str, ...]:
        folder = path.parent if _is_dataset(path) else path
        file = folder / "meta.json"
        if not file.is_file():
            return ()
        items = items_of(read_json(file), "classes")
        if items is None or not all(isinstance(item, dict) and item.get("title") for item in items):
            advice = "download the project again"
            raise DataError(f"{file}: has no list 'classes' of classes with a title", advice=advice)
        return tuple(dict.fromkeys(str(item["title"]).strip() for item in items))

    @classmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        finder = ImageFinder()
        for file in files_below(path, {".json"}):
            if file.parent.name == "ann":
                annotation = _parse(file, finder, collector)
                if annotation is not None:
                    yield annotation


def _is_dataset(folder: Path) -> bool:
    has_folders = (folder / "ann").is_dir() and (folder / "img").is_dir()
    return has_folders and any(suffix_of(name) == ".json" for name in names_in(folder / "ann"))


def _parse(file: Path, finder: ImageFinder, collector: Collector) -> NamedAnnotation | None:
    relative = collector.relative_path(file)
    try:
        content = read_json(file)
    except DataError as error:
        collector.leave_out("unreadable-annotation", relative, error.message.removeprefix(f"{file}: "))
        return None
    items = items_of(content, "objects")
    if items is None:
        collector.leave_out("unreadable-annotation", relative, "has no list 'objects'")
        return None
    objects = [_object(number, item, relative, collector) for number, item in enumerate(items, 1)]
    folder = file.parent.with_name("img")
    return NamedAnnotation(
        file=file,
        image=_image_name(file, folder, finder),
        folders=(folder,),
        objects=[obj for obj in objects if obj],
        size=_size(content.get("size")),
        split=split_of_path(file, collector.root),
    )


def _image_name(file: Path, folder: Path, finder: ImageFinder) -> str:
    """Return the name of the image: `a.jpg.json` belongs to `a.jpg`; older exports write `a.json`."""
    name = stem_of(file.name)
    image = None if suffix_of(name) in IMAGE_SUFFIXES else finder.find((folder,), name)
    return image.name if image else name


def _size(size: object) -> tuple[int, int] | None:
    width, height = (size.get("width"), size.get("height")) if isinstance(size, dict) else (None, None)
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _object(number: int, item: object, file: str, collector: Collector) -> NamedObject | None:
    name = str(item.get("classTitle") or "").strip() if isinstance(item, dict) else ""
    at = f"object {number} ({name or 'no class'})"
    if not isinstance(item, dict) or not name:
        collector.leave_out("unknown-class", file, "has no classTitle", at=at)
        return None
    box = _box(item)
    if isinstance(box, str):
        collector.leave_out("box-malformed", file, box, at=at)
        return None
    return name, Object(at=at, box=box, label=-1)


def _box(item: dict[str, Any]) -> Box | str:
    """Return the bounding box of an object, or why it has none."""
    shape = item.get("geometryType") or ("bitmap" if item.get("bitmap") else "polygon")
    if shape in {"bitmap", "alpha_mask"}:
        return _mask_box(item.get("bitmap"))
    if shape not in {"rectangle", "polygon"}:
        return f"is a {shape}, which has no box"
    listed = items_of(item.get("points"), "exterior") or []
    points = [point for point in (numbers_of(point, 2) for point in listed) if point]
    if len(points) < max(2, len(listed)):
        return f"its corners are not pairs of numbers: {str(listed)[:80]}"
    xs, ys = zip(*points, strict=True)
    if shape == "rectangle":
        return xs[0], ys[0], xs[-1], ys[-1]
    return min(xs), min(ys), max(xs), max(ys)


def _mask_box(bitmap: object) -> Box | str:
    """Return the box of what is set in a mask: a PNG, compressed and in base 64, at `origin` in the image."""
    content = bitmap if isinstance(bitmap, dict) else {}
    origin = numbers_of(content.get("origin"), 2)
    if origin is None:
        return "its bitmap has no origin"
    try:
        inflate = zlib.decompressobj()
        png = inflate.decompress(base64.b64decode(str(content.get("data"))), _MAX_MASK_BYTES)
        with Pillow.open(io.BytesIO(png), formats=("PNG",)) as image:
            if image.width * image.height > MAX_PIXELS:
                return f"its bitmap has {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}"
            mask = (
                image.convert("RGBA").getchannel("A") if image.has_transparency_data else image.convert("L")
            )
    except (*DECODING_FAULTS, binascii.Error, Pillow.DecompressionBombError) as error:
        return f"its bitmap cannot be decoded: {error}"
    edges = mask.getbbox()
    if edges is None:
        return "its bitmap is empty"
    (x, y), (x0, y0, x1, y1) = origin, edges
    return x + x0, y + y0, x + x1, y + y1
