"""Reader of COCO: JSON files that list images, categories and boxes, one per split or one for all."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from boxcrew.core.errors import DataError
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.detection.annotations import AnnotatedSource, Annotation, Collector, Object
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import names_in, split_of_file, split_of_folder, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_start

_KNOWN_STEMS = frozenset({"annotations", "coco", "_annotations.coco"})  # besides instances_* and splits


class _CocoFile(NamedTuple):
    """A parsed JSON file. Its lists hold dictionaries whose content is not checked yet."""

    file: Path
    split: str | None
    images: list[dict[str, Any]]
    annotations: list[dict[str, Any]]
    categories: Mapping[int, str]  # name by ascending id


@SOURCES.register("coco")
class CocoSource(AnnotatedSource):
    """A COCO data set. Category ids become labels 0..C-1 in ascending order, unused ones included. Several
    files must have the same categories. `iscrowd` is kept, and the `difficult` that our writer adds.
    """

    format = "coco"
    box_order = "xywh"
    expects = "a .json file, annotations/instances_{train,val,test}*.json or train/_annotations.coco.json"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return path.suffix.lower() == ".json"
        return any(_looks_like_coco(file) for file in _candidates(path))

    @classmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        root, files = _locate(path)
        collector = Collector(root)
        parsed = [_parse(file, None if path.is_file() else _split(file, root), collector) for file in files]
        if in_splits := [coco for coco in parsed if coco.split]:
            for coco in (coco for coco in parsed if not coco.split):
                message = "its name does not name a split, but those of other files do"
                collector.leave_out("no-split", collector.relative_path(coco.file), message)
            parsed = in_splits
        categories = _shared_categories(parsed)
        classes = tuple(dict.fromkeys(categories.values()))
        first = collector.relative_path(parsed[0].file)
        if len(classes) < len(categories):
            collector.note("duplicate-class", first, "categories of the same name are merged into one class")
        collector.note_gaps(first, list(categories), "missing category ids:")
        labels = {category: classes.index(name) for category, name in categories.items()}
        for coco in parsed:
            for annotation in _annotations(coco, labels, collector):
                collector.add(annotation, coco.split)
        if path.is_dir():  # a single file may leave images of its folder to other files
            _report_unlisted(collector)
        return collector, classes


def _candidates(root: Path) -> list[Path]:
    """Return JSON files that may be COCO's, by their names alone."""
    names = [name for name in names_in(root) if name.lower() == "annotations" or split_of_folder(name)]
    parents = [*(root / name for name in names), root]
    files = [parent / name for parent in parents for name in names_in(parent) if name.endswith(".json")]
    # Next to instances, COCO itself has captions and keypoints.
    return [file for file in files if file.stem.startswith("instances")] or [
        file for file in files if file.parent != root or file.stem in _KNOWN_STEMS or split_of_file(file.stem)
    ]


def _looks_like_coco(file: Path) -> bool:
    start = read_start(file, 65536)
    return any(word in start for word in (b'"images"', b'"annotations"', b'"categories"'))


def _locate(path: Path) -> tuple[Path, list[Path]]:
    """Return the root of the set and its JSON files."""
    if path.is_file():
        folder = path.parent
        return (folder.parent if folder.name.lower() == "annotations" else folder), [path]
    files = [file for file in _candidates(path) if _looks_like_coco(file)]
    if not files:
        problem = "has no COCO annotations" if path.is_dir() else "no such file or folder"
        raise DataError(f"{path}: {problem}", advice=f"looked for {CocoSource.expects}")
    return path, files


def _split(file: Path, root: Path) -> str | None:
    return split_of_file(file.stem) or (split_of_folder(file.parent.name) if file.parent != root else None)


def _parse(file: Path, split: str | None, collector: Collector) -> _CocoFile:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be parsed as JSON: {error}", advice="export it again") from error
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise DataError(f"{file}: is not COCO: it has no list 'images'", advice="use a COCO detection file")
    lists = {name: content.get(name, []) for name in ("images", "annotations", "categories")}
    for name, items in lists.items():
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise DataError(f"{file}: is not COCO: '{name}' is not a list of objects")
    try:
        pairs = [(int(item["id"]), str(item["name"]).strip()) for item in lists.pop("categories")]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: a category has no id or name", advice="give every category both") from error
    names = dict(reversed(pairs))
    for i, (category, name) in enumerate(pairs):
        if name != names[category]:
            message = f"category id {category} is used again, for {name}; it stays {names[category]}"
            where, at = collector.relative_path(file), f"category number {i}"
            collector.leave_out("duplicate-id", where, message, at=at, value=str(category))
    return _CocoFile(file=file, split=split, categories=dict(sorted(names.items())), **lists)


def _shared_categories(parsed: list[_CocoFile]) -> Mapping[int, str]:
    first = parsed[0]
    for coco in parsed[1:]:
        differing = sorted(set(first.categories.items()) ^ set(coco.categories.items()))
        if differing:
            message = f"its categories are not those of {first.file}: {differing[0]} is in only one"
            raise DataError(f"{coco.file}: {message}", advice="export all splits with the same categories")
    if not first.categories:
        raise DataError(f"{first.file}: has no categories", advice="add the list 'categories'")
    return first.categories


def _annotations(coco: _CocoFile, labels: Mapping[int, int], collector: Collector) -> Iterator[Annotation]:
    file = collector.relative_path(coco.file)
    images: dict[Any, dict[str, Any]] = {}
    for number, image in enumerate(coco.images):
        image_id, at = image.get("id"), f"image number {number}"
        if not isinstance(image_id, int | str) or not isinstance(image.get("file_name"), str):
            message = f"an image has no id or file_name: {image}"
            collector.leave_out("unreadable-annotation", file, message, at=at)
        elif image_id in images:
            message = f"image id {image_id} is used again; the first is kept"
            collector.leave_out("duplicate-id", file, message, at=at, value=str(image_id))
        else:
            images[image_id] = image
    objects = _objects_by_image(coco, images, labels, collector)
    folders = list(_image_folders(coco.file, collector.root))
    for image_id, image in images.items():
        at, width, height = f"image {image_id}", image.get("width"), image.get("height")
        path = _find(image["file_name"], folders, collector)
        if isinstance(path, Path):
            annotated = tuple(objects[image_id])
            size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
            yield Annotation(file=file, at=at, image=path, objects=annotated, size=size)
        else:
            collector.leave_out(path[0], file, path[1], at=at, value=image["file_name"])


def _objects_by_image(
    coco: _CocoFile, images: Mapping[Any, object], labels: Mapping[int, int], collector: Collector
) -> dict[Any, list[Object]]:
    file, seen = collector.relative_path(coco.file), set[Any]()
    objects: dict[Any, list[Object]] = defaultdict(list)
    for number, item in enumerate(coco.annotations):
        own_id, image, category = item.get("id"), item.get("image_id"), item.get("category_id")
        at = f"annotation number {number}" if own_id is None else f"annotation {own_id}"
        box = _corners(item.get("bbox"))
        if isinstance(own_id, int | str):
            if own_id in seen:
                collector.note("duplicate-id", file, "its id is used again", at=at, value=str(own_id))
            seen.add(own_id)
        if not isinstance(image, int | str) or image not in images:
            message = f"there is no image {image}"
            collector.leave_out("annotation-without-image", file, message, at=at, value=str(image))
        elif not isinstance(category, int) or category not in labels:
            message = f"there is no category {category}"
            collector.leave_out("unknown-class", file, message, at=at, value=str(category))
        elif box is None:
            message = f"bbox is not four numbers: {item.get('bbox')}"
            collector.leave_out("box-malformed", file, message, at=at, value=str(item.get("bbox")))
        else:
            difficult, crowd = bool(item.get("difficult", 0)), bool(item.get("iscrowd", 0))
            objects[image].append(Object(at, box, labels[category], difficult, crowd))
    return objects


def _corners(xywh: object) -> Box | None:
    """Convert COCO's x, y, width, height to xyxy; None if it is not four numbers."""
    try:
        x, y, width, height = map(float, xywh if isinstance(xywh, list) else ())
    except (TypeError, ValueError, OverflowError):
        return None
    return x, y, x + width, y + height


def _image_folders(file: Path, root: Path) -> Iterator[Path]:
    """Yield the folders that may hold the images, the most likely first: those named like the split."""
    split = _split(file, root)
    for parent in (root / "images", root):
        yield from (parent / name for name in names_in(parent) if split and split_of_folder(name) == split)
    yield from (root / "images", file.parent / "images", file.parent, root)


def _find(name: str, folders: Iterable[Path], collector: Collector) -> Path | tuple[ProblemKind, str]:
    """Return the image file, which must be inside the data set, or the kind and message of the problem."""
    relative = Path(name.replace("\\", "/"))
    may_leave, has_left = relative.is_absolute() or ".." in relative.parts, False
    for folder in folders:
        path = folder / relative
        if may_leave:
            path = Path(os.path.normpath(path))
            if collector.relative_path(path).startswith("../"):
                has_left = True
                continue
        if path.is_file():
            return path
    if has_left:
        return "path-escape", f"its file name leaves the data set: {name}"
    return "missing-file", f"there is no image file {name}"


def _report_unlisted(collector: Collector) -> None:
    """Report images in the folders of the listed ones that no file lists."""
    images = (folder / name for folder in collector.image_folders() for name in names_in(folder))
    for image in images:
        if suffix_of(image.name) in IMAGE_SUFFIXES and not collector.has_image(image):
            message = "is listed in no annotation file"
            collector.leave_out("image-without-annotation", collector.relative_path(image), message)
