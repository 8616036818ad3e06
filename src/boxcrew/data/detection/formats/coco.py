"""Reader of COCO: JSON files that list images, categories and objects, one per split or one for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from boxcrew.core.errors import DataError
from boxcrew.core.units import counted
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.config import BoxOptions
from boxcrew.data.detection.annotations import (
    AnnotatedSource,
    Annotation,
    Collector,
    Object,
    garbage_collection_paused,
)
from boxcrew.data.detection.coco_files import (
    CocoFile,
    category_number,
    find_coco_files,
    looks_like_coco,
    parse_coco,
    select_files,
    shared_categories,
    split_of,
    without_lists,
)
from boxcrew.data.detection.coco_quick import QuickReader
from boxcrew.data.detection.coco_shapes import box_of_bbox, box_of_segmentation
from boxcrew.data.detection.coco_stream import UnusualFileError, read_arrays
from boxcrew.data.detection.image_index import ImageIndex
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import names_in, split_of_folder, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

LARGE = 32 * 2**20
"""Bytes of a file from which on it is worth to read it in pieces."""


@SOURCES.register("coco")
class CocoSource(AnnotatedSource):
    """A COCO data set. Category ids become labels 0..C-1 in ascending order, unused ones included, except
    those that only group others. Several files must have the same categories. `iscrowd` is kept, and the
    `difficult` that our writer adds.
    """

    format = "coco"
    box_order = "xywh"
    expects = (
        "a .json file in COCO's format, alone or in the folder, in annotations/ or in train/, val/, test/"
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return suffix_of(path.name) == ".json" and looks_like_coco(path)
        return bool(find_coco_files(path))

    @classmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        root, files = _locate(path)
        collector, index = Collector(root), ImageIndex(root)
        parsed = [
            parse_coco(file, None if path.is_file() else split_of(file, root), collector) for file in files
        ]
        parsed = select_files(parsed, collector)
        classes, labels = _classes(parsed, collector)
        for coco in parsed:
            for annotation in _annotations(coco, labels, index, collector):
                collector.add(annotation, coco.split)
        if path.is_dir():  # a single file may leave images of its folder to other files
            _report_unlisted(collector)
        return collector, classes

    @classmethod
    @garbage_collection_paused()
    def open_quickly(cls, path: Path, *, seed: int, options: BoxOptions) -> Self | None:
        root, files = _locate(path)
        if options.changed_keys() or max(file.stat().st_size for file in files) < LARGE:
            return None
        collector = Collector(root)
        quick = QuickReader(collector)
        try:
            arrays = {file: read_arrays(file) for file in files}
            parsed = [
                without_lists(file, None if path.is_file() else split_of(file, root), read, collector)
                for file, read in arrays.items()
            ]
            parsed = select_files(parsed, collector)
            classes, labels = _classes(parsed, collector)
            for coco in parsed:
                quick.add(coco, arrays.pop(coco.file), labels, [*_image_folders(coco.file, root)])
            notes = collector.problems
            splits, problems = quick.finish(len(classes), reports_unlisted=path.is_dir())
        except (UnusualFileError, DataError):
            return None  # the usual way says what is wrong
        splits, every = collector.complete(splits, [*notes, *problems], seed=seed)
        return cls(root=root, classes=classes, splits=splits, problems=every, compares_sizes=True)


def _classes(parsed: list[CocoFile], collector: Collector) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the names of the classes, and the label of each category."""
    categories = shared_categories(parsed, collector)
    classes = tuple(dict.fromkeys(categories.values()))
    first = collector.relative_path(parsed[0].file)
    if len(classes) < len(categories):
        collector.note("duplicate-class", first, "categories of the same name are merged into one class")
    collector.note_gaps(first, list(categories), "missing category ids:")
    return classes, {category: classes.index(name) for category, name in categories.items()}


def _locate(path: Path) -> tuple[Path, list[Path]]:
    """Return the root of the set and its JSON files."""
    if path.is_file():
        folder = path.parent
        return (folder.parent if folder.name.lower() == "annotations" else folder), [path]
    files = find_coco_files(path)
    if not files:
        problem = "has no COCO annotations" if path.is_dir() else "no such file or folder"
        raise DataError(f"{path}: {problem}", advice=f"looked for {CocoSource.expects}")
    return path, files


def _annotations(
    coco: CocoFile, labels: Mapping[int, int], index: ImageIndex, collector: Collector
) -> Iterator[Annotation]:
    file, images = collector.relative_path(coco.file), _images_by_id(coco, collector)
    objects = _objects_by_image(coco, images, labels, collector)
    folders = list(_image_folders(coco.file, collector.root))
    for image_id, image in images.items():
        at, name = f"image {image_id}", image["file_name"]
        width, height = image.get("width"), image.get("height")
        path = index.find(name, folders)
        if isinstance(path, Path):
            annotated = tuple(objects[image_id])
            size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
            yield Annotation(file=file, at=at, image=path, objects=annotated, size=size)
        else:
            kind, message = path
            collector.leave_out(kind, file, message, at=at, value=name)


def _images_by_id(coco: CocoFile, collector: Collector) -> dict[str, dict[str, Any]]:
    file, images = collector.relative_path(coco.file), dict[str, dict[str, Any]]()
    for number, image in enumerate(coco.images):
        image_id, at = _image_id(image.get("id")), f"image number {number}"
        if image_id is None or not isinstance(image.get("file_name"), str):
            message = f"an image has no id or file_name: {str(image)[:80]}"
            collector.leave_out("unreadable-annotation", file, message, at=at)
        elif image_id in images:
            message = f"image id {image_id} is used again; the first is kept"
            collector.leave_out("duplicate-id", file, message, at=at, value=image_id)
        else:
            images[image_id] = image
    return images


def _image_id(value: object) -> str | None:
    """Return an id as text, because a tool may write 7, "7" and 7.0 in one file."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int | str) else None


def _objects_by_image(
    coco: CocoFile, images: Mapping[str, object], labels: Mapping[int, int], collector: Collector
) -> dict[str, list[Object]]:
    file, seen, num_derived = collector.relative_path(coco.file), set[int | str](), 0
    objects: dict[str, list[Object]] = defaultdict(list)
    for number, item in enumerate(coco.annotations):
        own_id, image = item.get("id"), _image_id(item.get("image_id"))
        category = category_number(item.get("category_id"))
        at = f"annotation number {number}" if own_id is None else f"annotation {own_id}"
        if isinstance(own_id, int | str):
            if own_id in seen:
                collector.note("duplicate-id", file, "its id is used again", at=at, value=str(own_id))
            seen.add(own_id)
        if image is None or image not in images:
            value = str(item.get("image_id"))
            message = f"there is no image {value}"
            collector.leave_out("annotation-without-image", file, message, at=at, value=value)
        elif category is None or category not in labels:
            value = str(item.get("category_id"))
            collector.leave_out("unknown-class", file, f"there is no category {value}", at=at, value=value)
        elif box := _box(item):
            num_derived += not item.get("bbox")
            difficult, crowd = bool(item.get("difficult", 0)), bool(item.get("iscrowd", 0))
            objects[image].append(Object(at, box, labels[category], difficult, crowd))
        else:
            _leave_out_object(item, file, at, collector)
    if num_derived:
        message = f"the boxes of {counted(num_derived, 'object')} are derived from segmentations"
        collector.note("box-derived", file, message, count=num_derived)
    return objects


def _box(item: Mapping[str, Any]) -> Box | None:
    bbox = item.get("bbox")
    return box_of_bbox(bbox) if bbox else box_of_segmentation(item.get("segmentation"))


def _leave_out_object(item: Mapping[str, Any], file: str, at: str, collector: Collector) -> None:
    value, message = str(item.get("bbox"))[:80], "bbox is not four numbers: "
    if not item.get("bbox") and item.get("segmentation"):
        value, message = str(item["segmentation"])[:80], "segmentation is neither polygons nor a mask: "
    collector.leave_out("box-malformed", file, message + value, at=at, value=value)


def _image_folders(file: Path, root: Path) -> Iterator[Path]:
    """Yield the folders that may hold the images, the most likely first: those named like the split."""
    split = split_of(file, root)
    for parent in (root / "images", root):
        yield from (parent / name for name in names_in(parent) if split and split_of_folder(name) == split)
    yield from (root / "images", file.parent / "images", file.parent)


def _report_unlisted(collector: Collector) -> None:
    """Report images in the folders of the listed ones that no file lists."""
    images = (folder / name for folder in collector.image_folders() for name in names_in(folder))
    for image in images:
        if suffix_of(image.name) in IMAGE_SUFFIXES and not collector.has_image(image):
            message = "is listed in no annotation file"
            collector.leave_out("image-without-annotation", collector.relative_path(image), message)
