"""Reader of CSV files with one box in each row. `csv_layouts` lists the layouts that are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.data.detection.annotations import Collector, Object
from boxcrew.data.detection.csv_layouts import SAMPLE_BYTES, SETS, Layout, find_layout, read_rows
from boxcrew.data.detection.named import NamedAnnotation, NamedObject, NamedSource
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import (
    names_in,
    read_utf8,
    root_of_file,
    split_of_file,
    split_of_folder,
    split_of_path,
    suffix_of,
)
from boxcrew.data.images.reading import read_start

_FOLDERS = frozenset({"annotations", "csv", "data", "labels", "vott-csv-export"})  # besides those of splits
_CLASS_FILES = ("classes.csv", "_classes.csv")


@SOURCES.register("boxes_csv")
class BoxesCsvSource(NamedSource):
    """Tables of boxes. Splits come from AutoML's first column, else from the names of files and folders.
    Classes come from `classes.csv` (`name,id`), else they are the names in use, sorted. A row with neither
    class nor coordinates is an image without objects.
    """

    format = "boxes_csv"
    expects = "a .csv file of boxes with image names, classes and coordinates"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_file():
            return suffix_of(path.name) == ".csv" and _layout_of(path) is not None
        # The TensorFlow tutorial makes its tables out of VOC files, which say the same and more.
        return any(map(_layout_of, _candidates(path))) and not SOURCES.get("voc").detect(path)

    @classmethod
    def root_of(cls, path: Path) -> Path:
        if not any(map(_layout_of, _candidates(path))):
            raise cls.not_found(path, "has no table of boxes")
        return path if path.is_dir() else root_of_file(path, _FOLDERS)

    @classmethod
    def declared_classes(cls, path: Path) -> tuple[str, ...]:
        folders = dict.fromkeys(file.parent for file in _candidates(path))
        files = (folder / name for folder in folders for name in _CLASS_FILES)
        return next((_read_classes(file) for file in files if file.is_file()), ())

    @classmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        for file in _candidates(path):
            relative = collector.relative_path(file)
            try:
                text = read_utf8(file)
            except DataError as error:
                message = error.message.removeprefix(f"{file}: ")
                collector.leave_out("unreadable-annotation", relative, message)
                continue
            layout = find_layout(text)
            if layout is not None:
                yield from _parse(file, text, layout, collector, single=path.is_file())
            elif file.name not in _CLASS_FILES:
                message = "is not a table of boxes in a known layout"
                collector.leave_out("unreadable-annotation", relative, message)


def _candidates(path: Path) -> list[Path]:
    """Return the CSV files of a set, by their names alone."""
    if path.is_file():
        return [path]
    below = [name for name in names_in(path) if split_of_folder(name) or name.lower() in _FOLDERS]
    folders = [path, *(path / name for name in below)]
    files = [folder / name for folder in folders for name in names_in(folder) if suffix_of(name) == ".csv"]
    return [file for file in files if file.is_file() and not file.name.startswith(".")]


def _layout_of(file: Path) -> Layout | None:
    """Return the layout of a file from its beginning, None if it is not a table of boxes."""
    try:
        start = read_start(file, SAMPLE_BYTES)
    except OSError:
        return None
    if len(start) == SAMPLE_BYTES:
        start = start[: start.rfind(b"\n") + 1]
    return find_layout(start.decode(errors="replace").removeprefix("\ufeff").replace("\r", "\n"))


def _read_classes(file: Path) -> tuple[str, ...]:
    """Return the classes of a file of `name,id` in the order of their ids."""
    rows = list(read_rows(read_utf8(file), ","))
    if rows and len(rows[0][1]) == 2 and not rows[0][1][1].isdecimal():
        del rows[0]  # a header
    names: dict[int, str] = {}
    for number, row in rows:
        if len(row) != 2 or not row[0] or not row[1].isdecimal() or int(row[1]) in names:
            message = f"{file}: line {number} is not a class and an id of its own: {','.join(row)!r}"
            raise DataError(message, advice="write one class in each line: name,id")
        names[int(row[1])] = row[0]
    return tuple(dict.fromkeys(names[number] for number in sorted(names)))


def _parse(
    file: Path, text: str, layout: Layout, collector: Collector, *, single: bool
) -> Iterator[NamedAnnotation]:
    """Yield the annotations of a file, its rows put together by image."""
    relative = collector.relative_path(file)
    split = None if single else split_of_file(file.stem) or split_of_path(file, collector.root)
    rows = read_rows(text, layout.delimiter)
    if layout.has_header:
        next(rows)
    images: dict[tuple[str, str | None], list[tuple[int, list[str]]]] = {}
    for number, row in rows:
        if misfit := layout.misfit(row):
            collector.leave_out("row-malformed", relative, misfit, at=f"line {number}")
            continue
        if layout.split is not None:
            split = SETS.get(row[layout.split].upper())
        images.setdefault((row[layout.image], split), []).append((number, row))
    folders = {each: _image_folders(collector.root, each) for each in {split for _, split in images}}
    for (image, of_image), numbered in images.items():
        objects = [_object(number, row, layout, relative, collector) for number, row in numbered]
        first, row = numbered[0]
        yield NamedAnnotation(
            file=file,
            at=f"line {first}",
            image=image,
            folders=folders[of_image],
            objects=[obj for obj in objects if obj],
            relative=layout.relative,
            size=layout.size_of_image(row),
            split=of_image,
        )


def _object(
    number: int, row: Sequence[str], layout: Layout, file: str, collector: Collector
) -> NamedObject | None:
    """Return the object of a row; None if it has none, or none that can be used."""
    (across, down), label, at = layout.coordinates(row), row[layout.label], f"line {number}"
    if not label and not across and not down:
        return None
    box = layout.box(row)
    if box is None:
        words = ", ".join((*across, *down))
        message = f"box is not four numbers: {words}"
        collector.leave_out("box-malformed", file, message, at=at, value=words)
        return None
    if not label:
        collector.leave_out("unknown-class", file, "has no class", at=at)
        return None
    return label, Object(at=at, box=box, label=-1)


def _image_folders(root: Path, split: str | None) -> list[Path]:
    """Return the folders of images that are named after the split."""
    parents = (root, root / "images") if split else ()
    return [
        parent / name for parent in parents for name in names_in(parent) if split_of_folder(name) == split
    ]
