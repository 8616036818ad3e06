"""Reader of Open Images: CSV files of boxes in fractions of the image, and images named after their ids.

Annotations are those of millions of images, of which people download some. Only the rows of images that are
there are parsed; the others are counted in one problem.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.core.units import counted
from boxcrew.data.detection.annotations import Collector, Object
from boxcrew.data.detection.named import NamedAnnotation, NamedObject, NamedSource
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import (
    files_below,
    names_in,
    read_utf8,
    root_of_file,
    split_of_file,
    split_of_folder,
    split_of_path,
    stem_of,
    suffix_of,
)
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_start

_COLUMNS = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax")
_FOLDERS = frozenset({"annotations", "boxes", "csv", "csv_folder", "labels"})  # besides those of splits


@SOURCES.register("open_images")
class OpenImagesSource(NamedSource):
    """Open Images, as downloaded or as FiftyOne writes it. The names of the files of boxes, or else of their
    folders, name the splits. `IsGroupOf` objects are crowds. Classes are those in use, sorted, with the names
    of `class-descriptions-boxable.csv`.
    """

    format = "open_images"
    expects = "train-annotations-bbox.csv with ImageID, LabelName, XMin, XMax, YMin and YMax"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return any(map(_is_box_file, _candidates(path)))

    @classmethod
    def root_of(cls, path: Path) -> Path:
        if not any(map(_is_box_file, _candidates(path))):
            raise cls.not_found(path, "has no boxes of Open Images")
        return path if path.is_dir() else root_of_file(path, _FOLDERS)

    @classmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        images = _images_by_id(collector.root)
        names = _class_names(path, collector)
        for file in filter(_is_box_file, _candidates(path)):
            split = None if path.is_file() else _split(file, collector.root)
            rows = _read_boxes(file, images, names, collector)
            if rows.num_missing:
                message = f"{counted(rows.num_missing, 'object')} of images that are not here"
                collector.leave_out("annotation-without-image", collector.relative_path(file), message)
            yield from _annotations(file, split, rows, images, collector)


@dataclass(kw_only=True)
class _Rows:
    """The objects of one file by the ids of their images."""

    objects: dict[str, list[NamedObject]] = field(default_factory=dict)
    num_missing: int = 0  # objects of images that are not there


def _candidates(path: Path) -> list[Path]:
    """Return the CSV files of a set, by their names alone."""
    if path.is_file():
        return [path] if suffix_of(path.name) == ".csv" else []
    splits = [path / name for name in names_in(path) if split_of_folder(name)]
    parents = [path, *splits]
    folders = [parent / name for parent in parents for name in names_in(parent) if name.lower() in _FOLDERS]
    files = (folder / name for folder in (*parents, *folders) for name in names_in(folder))
    return [file for file in files if suffix_of(file.name) == ".csv" and not file.name.startswith(".")]


def _is_box_file(file: Path) -> bool:
    try:
        start = read_start(file, 1024)
    except OSError:
        return False
    columns = _header(start.decode(errors="replace").partition("\n")[0])
    return columns[0] == _COLUMNS[0] and set(_COLUMNS) <= set(columns)


def _header(line: str) -> list[str]:
    return [column.strip() for column in line.removeprefix("\ufeff").split(",")]


def _split(file: Path, root: Path) -> str | None:
    return split_of_file(file.stem) or split_of_path(file, root)


def _images_by_id(root: Path) -> dict[str, list[Path]]:
    images: dict[str, list[Path]] = {}
    for image in files_below(root, IMAGE_SUFFIXES):
        images.setdefault(stem_of(image.name), []).append(image)
    return images


def _class_names(path: Path, collector: Collector) -> dict[str, str]:
    """Return the class names by their ids, such as Tortoise by /m/011k07."""
    folders = dict.fromkeys(file.parent for file in _candidates(path))
    folders |= dict.fromkeys(folder.parent / "metadata" for folder in folders)
    files = [folder / name for folder in folders for name in names_in(folder) if suffix_of(name) == ".csv"]
    names: dict[str, str] = {}
    for file in (file for file in files if "class-descriptions" in file.name or file.name == "classes.csv"):
        try:
            rows = [row for row in csv.reader(read_utf8(file).split("\n")) if len(row) > 1]
        except (DataError, csv.Error) as error:
            collector.leave_out("unreadable-annotation", collector.relative_path(file), str(error))
        else:
            names |= {row[0].strip(): row[1].strip() for row in rows if row[1].strip()}
    return names


def _read_boxes(
    file: Path, images: Mapping[str, object], names: Mapping[str, str], collector: Collector
) -> _Rows:
    """Read the rows of images that are there, without parsing the others: files have millions of rows."""
    rows, relative, unnamed = _Rows(), collector.relative_path(file), set[str]()
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        columns = _header(next(lines))
        for number, line in enumerate(lines, 2):
            image = line.partition(",")[0].strip()
            if image not in images:
                rows.num_missing += not line.isspace()
                continue
            fields = dict(zip(columns, map(str.strip, line.split(",")), strict=False))
            label, at = fields.get("LabelName", ""), f"line {number}"
            named = _object(fields, names.get(label, label), at)
            if isinstance(named, str):
                collector.leave_out("box-malformed", relative, named, at=at)
            else:
                rows.objects.setdefault(image, []).append(named)
                unnamed |= set() if label in names else {label}
    for label in sorted(unnamed if names else ()):
        message = f"class {label} has no name in the class descriptions; its id is used"
        collector.note("unknown-class", relative, message, value=label)
    return rows


def _object(fields: Mapping[str, str], name: str, at: str) -> NamedObject | str:
    """Return the object of a row, or why it cannot be used."""
    try:
        x0, y0, x1, y1 = (float(fields[column]) for column in ("XMin", "YMin", "XMax", "YMax"))
    except (KeyError, ValueError):
        return f"box is not four numbers: {[fields.get(column, '') for column in _COLUMNS[2:]]}"
    if not name:
        return "has no LabelName"
    crowd = fields.get("IsGroupOf", "").lower() in {"1", "true"}
    return name, Object(at=at, box=(x0, y0, x1, y1), label=-1, crowd=crowd)


def _annotations(
    file: Path, split: str | None, rows: _Rows, images: Mapping[str, list[Path]], collector: Collector
) -> Iterator[NamedAnnotation]:
    for image_id, objects in rows.objects.items():
        files, at = images[image_id], objects[0][1].at
        of_split = [image for image in files if split and split_of_path(image, collector.root) == split]
        image = (of_split or files)[0]
        if len(of_split or files) > 1:
            first, second = map(collector.relative_path, (of_split or files)[:2])
            message = f"{image_id} may be {first} or {second}"
            relative = collector.relative_path(file)
            collector.leave_out("ambiguous-image", relative, message, at=at, value=image_id)
            continue
        yield NamedAnnotation(
            file=file,
            at=at,
            image=image.name,
            folders=(image.parent,),
            objects=objects,
            relative=True,
            split=split,
        )
