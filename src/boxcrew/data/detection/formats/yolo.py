"""YOLO: one text file of `class x y width height` in fractions for each image, with Ultralytics' data.yaml or
without. Segmentation polygons become their bounding boxes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Self

from boxcrew.core.errors import DataError
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import Kind
from boxcrew.data.detection.annotations import Annotation, Gathering, Object, collector_paused
from boxcrew.data.detection.data_yaml import described_splits, find_yamls, read_description
from boxcrew.data.detection.label_tables import read_tables
from boxcrew.data.detection.source import SOURCES, Source
from boxcrew.data.folders import (
    ImageFinder,
    files_below,
    names_in,
    read_lines,
    split_of_folder,
    stem_of,
    suffix_of,
)
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_start

_NAME_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "labels/obj.names")
_LABEL_BYTES = 65_536  # most label files are shorter
_MAX_UNNAMED_CLASSES = 10_000  # a class id beyond it is taken for a mistake where no names tell


@SOURCES.register("yolo")
class YoloSource(Source):
    """Labels are looked for in `labels` where the image lies in `images`, else beside the image. An image
    with no label file, or an empty one, is background.
    """

    format = "yolo"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return bool(find_yamls(path)) or (path.is_dir() and any(map(_has_labels, _likely_folders(path))))

    @classmethod
    def looked_for(cls) -> str:
        return "data.yaml with names and train, or images/ with labels/*.txt, or a .txt beside each image"

    @classmethod
    @collector_paused()
    def open(cls, path: Path, *, seed: int = 0) -> Self:
        yamls = find_yamls(path)
        if len(yamls) > 1:
            names = ", ".join(file.name for file in yamls)
            raise DataError(
                f"{path}: holds several data files: {names}", advice="give the path of one of them"
            )
        if yamls:
            description = read_description(yamls[0])
            gathering = Gathering(description.root)
            named: tuple[str, ...] | None = description.classes
            images: list[tuple[str | None, Path]] = [*described_splits(description, gathering)]
        elif path.is_dir() and cls.detect(path):
            gathering = Gathering(path)
            named = _names(path)
            inside = path / "images"
            images = gathering.divide(files_below(inside if inside.is_dir() else path, IMAGE_SUFFIXES))
        else:
            raise DataError(f"{path}: is not a YOLO data set", advice=f"looked for {cls.looked_for()}")
        classes = _gather(images, named, gathering)
        splits, problems = gathering.finish(seed=seed)
        return cls(root=gathering.root, classes=classes, splits=splits, problems=problems)


def _likely_folders(root: Path) -> Iterator[Path]:
    """Folders that may hold images with labels, without a search of the whole tree."""
    for parent in (root, root / "images"):
        if parent.is_dir():
            yield parent
            splits = (parent / name for name in names_in(parent) if split_of_folder(name))
            yield from (child for child in splits if child.is_dir())
    yield from (root / name / "images" for name in names_in(root) if split_of_folder(name))


def _has_labels(folder: Path) -> bool:
    finder = ImageFinder()
    places = [folder, _label_folder(folder)]
    texts = (name for place in places if place for name in names_in(place) if name.endswith(".txt"))
    return any(finder.find([folder], name.removesuffix(".txt")) for name in texts)


@lru_cache(maxsize=1024)
def _label_folder(folder: Path) -> Path | None:
    """The path with its last `images` replaced by `labels`."""
    parts = folder.parts
    for i in reversed(range(len(parts))):
        if parts[i] == "images":
            return Path(*parts[:i], "labels", *parts[i + 1 :])
    return None


class _LabelFinder:
    """Where the labels of an image are, or would be. Each folder is listed once: to ask the system for every
    file would be slow.
    """

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, frozenset[str], frozenset[str]]] = {}

    @property
    def image_folders(self) -> list[Path]:
        """Of all images asked for."""
        return sorted(map(Path, self._places))

    def find(self, image: Path) -> str:
        folder, _, name = str(image).rpartition(os.sep)
        folder = folder or str(image.parent)  # of a path without one: "."
        if folder not in self._places:
            mirrored = _label_folder(image.parent)
            listed = names_in(mirrored) if mirrored else ()
            beside = frozenset(names_in(image.parent))
            self._places[folder] = str(mirrored or image.parent), frozenset(listed), beside
        labels, mirrored_names, beside = self._places[folder]
        label = f"{stem_of(name)}.txt"
        is_beside = label in beside and label not in mirrored_names
        return f"{folder if is_beside else labels}{os.sep}{label}"


def _names(root: Path) -> tuple[str, ...] | None:
    file = next((root / name for name in _NAME_FILES if (root / name).is_file()), None)
    return tuple(read_lines(file)) if file else None


def _gather(
    images: Iterable[tuple[str | None, Path]], named: tuple[str, ...] | None, gathering: Gathering
) -> tuple[str, ...]:
    """Adds every image with its labels; gives the classes, which are numbered where they have no names."""
    images, finder = list(images), _LabelFinder()
    num_classes = len(named) if named else _MAX_UNNAMED_CLASSES
    files = [finder.find(image) for _, image in images]
    texts = [_read_text(file) for file in files]
    tables = read_tables([text if isinstance(text, bytes) else b"" for text in texts], num_classes)
    used = set[int]()
    for (split, image), file, text, table in zip(images, files, texts, tables, strict=True):
        place = gathering.place(image if text is None else file)
        objects = table or _read_labels(text, place, num_classes, gathering)
        used.update(table.labels.tolist() if table else [thing.label for thing in objects or ()])
        gathering.add(Annotation(file=place, image=image, objects=objects, relative=True), split)
    _report_lone_labels(finder.image_folders, gathering)
    if named:
        return named
    num_classes = max(used, default=-1) + 1
    gathering.note_gaps(str(gathering.root), sorted(used | {0}), "no object is of the classes")
    return tuple(f"class{i}" for i in range(num_classes))


class _LineError(Exception):
    """What is wrong with a line of labels."""

    def __init__(self, kind: Kind, what: str) -> None:
        super().__init__(what)
        self.kind: Kind = kind


def _read_text(file: str) -> bytes | OSError | None:
    """None if there is no file."""
    try:
        data = read_start(file, _LABEL_BYTES)
        return Path(file).read_bytes() if len(data) == _LABEL_BYTES else data
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def _read_labels(
    text: bytes | OSError | None, place: str, num_classes: int, gathering: Gathering
) -> list[Object] | None:
    """Line by line; None if there is no file."""
    if text is None:
        return None
    try:
        if isinstance(text, OSError):
            raise text
        lines = text.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        gathering.leave_out("unreadable-annotation", place, f"cannot be read as text: {error}")
        return []
    objects = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        at = f"line {number}"
        try:
            label, box = _parse_words(words, num_classes)
        except _LineError as error:
            gathering.leave_out(error.kind, place, str(error), at=at, value=line[:80])
        else:
            objects.append(Object(at, box, label))
    return objects


def _parse_words(words: list[str], num_classes: int) -> tuple[int, Box]:
    """Label and box, in fractions."""
    try:
        label, *numbers = map(float, words)
    except ValueError:
        raise _LineError("box-malformed", f"is not a line of numbers: {' '.join(words)[:80]}") from None
    if not label.is_integer() or not 0 <= label < num_classes:
        what = f"there is no class {label:g}; classes are 0 to {num_classes - 1}"
        raise _LineError("unknown-class", what)
    if len(numbers) == 4:
        x, y, width, height = numbers
        box: Box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    elif len(numbers) >= 6 and len(numbers) % 2 == 0:
        box = (min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2]))
    else:
        what = f"has {len(numbers)} numbers after the class, not 4 or the pairs of a polygon"
        raise _LineError("box-malformed", what)
    return int(label), box


def _report_lone_labels(image_folders: Iterable[Path], gathering: Gathering) -> None:
    for folder in image_folders:
        labels = _label_folder(folder)
        if labels is None:
            continue
        stems = {stem_of(name) for name in names_in(folder) if suffix_of(name) in IMAGE_SUFFIXES}
        for name in names_in(labels):
            if name.endswith(".txt") and name != "classes.txt" and stem_of(name) not in stems:
                file = gathering.place(labels / name)
                gathering.leave_out("annotation-without-image", file, "has no image")
