"""Reader of WebDataset: tar archives with an image and a JSON file for each sample, `KEY.jpg` and `KEY.json`.

The JSON is one of

- `{"annotations": [{"bbox": [x, y, width, height], "category": …}, …]}`, as in COCO, where the class is
  `category_name`, `category`, `label` or `category_id`, and `iscrowd` and `difficult` may be set;
- `{"boxes": [[x0, y0, x1, y1], …], "labels": […]}`

in pixels, both also with the size, as `width` and `height` or as `image` with these two. A class is a name or
a number. Numbers are ids of `categories` (a list of `{"id": …, "name": …}`, or names by id) if the JSON has
them, else they count the lines of `classes.txt` beside the archives from zero, else they are the names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.data.detection.annotations import AnnotatedSource, Annotation, Collector, Object
from boxcrew.data.detection.json_files import items_of, numbers_of
from boxcrew.data.detection.named import NamedObject
from boxcrew.data.detection.packed_index import is_packed, require_finished
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.detection.tar_shards import first_members, list_shard
from boxcrew.data.folders import (
    names_in,
    read_lines,
    split_of_file,
    split_of_folder,
    split_of_path,
    stem_of,
    suffix_of,
)
from boxcrew.data.images.packed import PackedFile
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_PEEKED_SHARDS, _PEEKED_MEMBERS = 3, 64  # looked at to detect the format: other archives lie beside data too
_MAX_JSON_BYTES = 16 * 2**20
_CLASS_KEYS = ("category_name", "category", "label", "category_id")


class _Sample(NamedTuple):
    """An image and its objects, whose labels are not known yet."""

    image: PackedFile
    file: str  # the JSON file, relative to the root
    objects: list[NamedObject]
    size: tuple[int, int] | None
    split: str | None


@SOURCES.register("webdataset")
class WebDatasetSource(AnnotatedSource):
    """Tar shards, which name the splits: `train-000000.tar`, or `train/000000.tar`. Images are read in
    the archives, which are never extracted.
    """

    format = "webdataset"
    expects = "archives such as train-000000.tar with KEY.jpg and KEY.json"

    @classmethod
    def detect(cls, path: Path) -> bool:
        shards = _shards(path)
        if is_packed(path):
            return False  # that format is faster, and knows whether the shards are all there
        return bool(shards) and (path.is_file() or any(map(_holds_samples, shards[:_PEEKED_SHARDS])))

    @classmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        require_finished(path)
        shards = _shards(path)
        if not shards:
            problem = "has no tar archive" if path.exists() else "no such file or folder"
            raise DataError(f"{path}: {problem}", advice=f"looked for {cls.expects}")
        root = path.parent if path.is_file() else path
        collector, listed = Collector(root), root / "classes.txt"
        names = list(dict.fromkeys(read_lines(listed))) if listed.is_file() else []
        samples = list[_Sample]()
        for shard in shards:
            split = None if path.is_file() else split_of_file(shard.stem) or split_of_path(shard, root)
            samples += _read_shard(shard, split, names, collector)
        classes = tuple(names or _names_in_use(samples))
        labels = {name: label for label, name in enumerate(classes)}
        has_splits = any(sample.split for sample in samples)
        for sample in samples:
            if has_splits and sample.split is None:
                message = "its archive belongs to no split, but others do"
                collector.leave_out("no-split", sample.file, message)
            else:
                collector.add(_annotation(sample, labels, collector), sample.split)
        return collector, classes


def _shards(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if suffix_of(path.name) == ".tar" else []
    folders = [path, *(path / name for name in names_in(path) if split_of_folder(name))]
    files = [folder / name for folder in folders for name in names_in(folder) if suffix_of(name) == ".tar"]
    return [file for file in files if file.is_file() and not file.name.startswith(".")]


def _holds_samples(shard: Path) -> bool:
    members = first_members(shard, _PEEKED_MEMBERS)
    annotated = {stem_of(member.name) for member in members if suffix_of(member.name) == ".json"}
    return any(suffix_of(m.name) in IMAGE_SUFFIXES and stem_of(m.name) in annotated for m in members)


def _read_shard(
    file: Path, split: str | None, names: Sequence[str], collector: Collector
) -> Iterator[_Sample]:
    shard, relative = list_shard(file), collector.relative_path(file)
    for fault in shard.faults:
        collector.leave_out("unreadable-annotation", relative, fault)
    annotations = {stem_of(m.name): m for m in shard.members if suffix_of(m.name) == ".json"}
    images = [m for m in shard.members if suffix_of(m.name) in IMAGE_SUFFIXES]
    for image in images:
        annotation = annotations.get(stem_of(image.name))
        if annotation is not None:
            sample = _read_sample(image, annotation, split, names, collector)
            if sample is not None:
                yield sample
        elif _key(image.name) not in annotations:  # `a.mask.png` is another image of the sample `a`
            message = "has no .json file; assumed to be not annotated yet"
            collector.leave_out("image-without-annotation", collector.relative_path(image), message)
    for stem in sorted(annotations.keys() - {stem_of(image.name) for image in images}):
        name = collector.relative_path(annotations[stem])
        collector.leave_out("annotation-without-image", name, "no image of this name is in the archive")


def _key(name: str) -> str:
    """Return the name up to the first dot after the last slash, which WebDataset calls the key."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.partition('.')[0]}"


def _read_sample(
    image: PackedFile, file: PackedFile, split: str | None, names: Sequence[str], collector: Collector
) -> _Sample | None:
    relative = collector.relative_path(file)
    try:
        if file.size > _MAX_JSON_BYTES:
            raise ValueError(f"it has {file.size:,} bytes")
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        collector.leave_out("unreadable-annotation", relative, f"cannot be parsed as JSON: {error}")
        return None
    objects = _items(content)
    if objects is None:
        message = "has neither a list 'annotations' nor lists 'boxes' and 'labels' of one length"
        collector.leave_out("unreadable-annotation", relative, message)
        return None
    categories = _categories(content) or dict(enumerate(names))
    used = (_object(i, item, categories, relative, collector) for i, item in enumerate(objects))
    return _Sample(image, relative, [obj for obj in used if obj], _size(content), split)


def _items(content: object) -> list[Any] | None:
    """Return the objects of a sample as COCO's annotations; None if there are none in a known form."""
    if not isinstance(content, dict):
        return None
    if "boxes" not in content:
        return items_of(content, "annotations") if "annotations" in content else None
    boxes, labels = items_of(content, "boxes"), items_of(content, "labels")
    if boxes is None or labels is None or len(boxes) != len(labels):
        return None
    return [{"box": box, "label": label} for box, label in zip(boxes, labels, strict=True)]


def _categories(content: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of categories by their ids. Those that are in no known form are not there."""
    categories = content.get("categories")
    pairs = list(categories.items()) if isinstance(categories, dict) else []
    if isinstance(categories, list):
        pairs = [(item.get("id"), item.get("name")) for item in categories if isinstance(item, dict)]
    return {int(key): str(name).strip() for key, name in pairs if str(key).isdecimal() and name}


def _object(
    number: int, item: object, categories: Mapping[int, str], file: str, collector: Collector
) -> NamedObject | None:
    fields = item if isinstance(item, dict) else {}
    numbers = fields.get("box", fields.get("bbox"))
    sides, at = numbers_of(numbers, 4), f"object {number + 1}"
    label = next((fields[key] for key in _CLASS_KEYS if fields.get(key) is not None), None)
    if sides is None:
        message = f"box is not four numbers: {str(numbers)[:80]}"
        collector.leave_out("box-malformed", file, message, at=at, value=str(numbers)[:80])
        return None
    name = _class_name(label, categories)
    if name is None:
        message = f"its class is neither a name nor a known id: {str(label)[:80]}"
        collector.leave_out("unknown-class", file, message, at=at, value=str(label)[:80])
        return None
    x, y, third, fourth = sides
    box = (x, y, third, fourth) if "box" in fields else (x, y, x + third, y + fourth)
    difficult, crowd = bool(fields.get("difficult")), bool(fields.get("iscrowd"))
    return name, Object(at=at, box=box, label=-1, difficult=difficult, crowd=crowd)


def _class_name(label: object, categories: Mapping[int, str]) -> str | None:
    if isinstance(label, str):
        return label.strip() or None
    if isinstance(label, bool) or not isinstance(label, int):
        return None
    return categories.get(label) if categories else str(label)


def _size(content: Mapping[str, Any]) -> tuple[int, int] | None:
    image = content.get("image")
    sizes = image if isinstance(image, dict) else content
    width, height = sizes.get("width"), sizes.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _names_in_use(samples: Sequence[_Sample]) -> list[str]:
    names = {name for sample in samples for name, _ in sample.objects}
    return sorted(names, key=int if all(name.isdecimal() for name in names) else None)


def _annotation(sample: _Sample, labels: Mapping[str, int], collector: Collector) -> Annotation:
    objects = list[Object]()
    for name, obj in sample.objects:
        if name in labels:
            objects.append(obj._replace(label=labels[name]))
        else:
            message = f"class {name!r} is not in classes.txt; {suggest(name, list(labels))}"
            collector.leave_out("unknown-class", sample.file, message, at=obj.at, value=name)
    return Annotation(file=sample.file, image=sample.image, objects=objects, size=sample.size)
