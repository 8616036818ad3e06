"""Reader of Label Studio's JSON and JSON-MIN exports, which name the images but do not contain them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from boxcrew.data.detection.annotations import Collector
from boxcrew.data.detection.label_studio_regions import Region, parse_regions
from boxcrew.data.detection.named import NamedAnnotation, NamedSource
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import beginning_of, files_below, first_files, split_of_file, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_DATA = re.compile(rb'"data"\s*:\s*\{')  # of a task; Create ML also writes lists with "annotations"


class _Version(NamedTuple):
    """One annotation of a task. A task may have several, by several people."""

    updated: str  # a date that sorts as text
    regions: list[Region]


class _Task(NamedTuple):
    at: str
    image: str
    versions: list[_Version]  # that were submitted, not skipped


@SOURCES.register("label_studio")
class LabelStudioSource(NamedSource):
    """A Label Studio data set. Rotated rectangles, polygons and ellipses become their bounding boxes.
    Predictions and skipped annotations are not labels; of several annotations of a task the last counts.
    """

    format = "label_studio"
    box_order = "xywh"
    expects = "a .json file of Label Studio (JSON or JSON-MIN), with the images in the same folder or below"

    @classmethod
    def detect(cls, path: Path) -> bool:
        files = [path] if path.is_file() else first_files(path, ".json", depth=1)
        return any(map(_looks_like_label_studio, files))

    @classmethod
    def root_of(cls, path: Path) -> Path:
        if not _files(path):
            raise cls.not_found(path, "is not a Label Studio export")
        return path.parent if path.is_file() else path

    @classmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        for file in _files(path):
            for task in _tasks(file, collector):
                yield _annotation(task, file, collector)


def _annotation(task: _Task, file: Path, collector: Collector) -> NamedAnnotation:
    relative, objects, size = collector.relative_path(file), None, None
    if len(task.versions) > 1:
        message = f"has {len(task.versions)} annotations; the one that was updated last is used"
        collector.note("several-annotations", relative, message, at=task.at)
    if task.versions:
        last = sorted(task.versions, key=lambda version: version.updated)[-1]
        objects, size = parse_regions(last.regions, task.at, relative, collector)
    return NamedAnnotation(
        file=file,
        at=task.at,
        image=task.image,
        objects=objects,
        relative=True,
        size=size,
        split=split_of_file(file.stem),
    )


def _looks_like_label_studio(file: Path) -> bool:
    start = beginning_of(file) if file.suffix.lower() == ".json" else b""
    is_full = _DATA.search(start) and (b'"annotations"' in start or b'"completions"' in start)
    is_minimal = b'"annotation_id"' in start or b'"original_width"' in start
    return start.startswith(b"[") and bool(is_full or is_minimal)


def _files(path: Path) -> list[Path]:
    files = [path] if path.is_file() else files_below(path, {".json"})
    return [file for file in files if _looks_like_label_studio(file)]


def _tasks(file: Path, collector: Collector) -> Iterator[_Task]:
    relative = collector.relative_path(file)
    try:
        items = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        collector.leave_out("unreadable-annotation", relative, f"cannot be parsed as JSON: {error}")
        return
    minimal: dict[tuple[str, str], _Task] = {}
    for number, item in enumerate(items, 1):
        fields = item if isinstance(item, dict) else {}
        data = fields.get("data", fields)
        at, image = f"task {fields.get('id', f'number {number}')}", _image_of(data)
        if not image:
            collector.leave_out("unreadable-annotation", relative, "names no image", at=at)
        elif data is not fields:
            yield _Task(at, image, list(_versions(fields, at, relative, collector)))
        else:  # JSON-MIN lists every annotation of a task on its own
            task = minimal.setdefault((at, image), _Task(at, image, []))
            task.versions.append(_Version(_date(fields), list(_minimal_regions(fields))))
    yield from minimal.values()


def _image_of(data: object) -> str:
    """Return the image of a task: what is called `image` or else, since projects choose the key, the first
    text that looks like one.
    """
    texts = (
        {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
    )
    return texts.get("image") or next(filter(_looks_like_image, texts.values()), "")


def _looks_like_image(text: str) -> bool:
    suffixes = {suffix_of(text), suffix_of(text.partition("?")[0])}
    return bool(suffixes & IMAGE_SUFFIXES) or "fileuri=" in text


def _date(fields: Mapping[str, Any]) -> str:
    return str(fields.get("updated_at") or fields.get("created_at") or "")


def _versions(fields: Mapping[str, Any], at: str, file: str, collector: Collector) -> Iterator[_Version]:
    annotations = fields.get("annotations", fields.get("completions"))
    for annotation in annotations if isinstance(annotations, list) else [annotations]:
        results = annotation.get("result") if isinstance(annotation, dict) else None
        if not isinstance(results, list):
            message = "an annotation has no list 'result'"
            collector.leave_out("unreadable-annotation", file, message, at=at, value=str(annotation)[:80])
        elif not annotation.get("was_cancelled") and not annotation.get("skipped"):
            yield _Version(_date(annotation), [_flat(result) for result in results])


def _flat(result: object) -> Region:
    """Return the fields of a result together with those of its value."""
    fields = result if isinstance(result, dict) else {}
    value = fields.get("value")
    return {**fields, **(value if isinstance(value, dict) else {})}


def _minimal_regions(fields: Mapping[str, Any]) -> Iterator[Region]:
    for value in fields.values():
        if isinstance(value, list):
            yield from (region for region in value if isinstance(region, dict))
