"""Reader of YOLO: a text file of `class x y width height` in fractions for each image, with Ultralytics'
data.yaml or without. Segmentation polygons become their bounding boxes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.detection.annotations import AnnotatedSource, Annotation, Collector, Object, ObjectTable
from boxcrew.data.detection.data_yaml import find_images, find_yamls, read_data_yaml
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.folders import files_below, names_in, read_lines, split_of_folder, stem_of, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES, read_start

_NAME_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "labels/obj.names")
_LABEL_BYTES = 65_536  # most label files are shorter
_MAX_CLASSES = 10_000  # a larger class id is an error even if there are no names
_COLUMNS = 5
_WORD, _SPACE, _NEWLINE, _OTHER = range(4)
_KIND_OF = dict.fromkeys(b"0123456789.+-eE", _WORD) | dict.fromkeys(b" \t", _SPACE) | {ord("\n"): _NEWLINE}
_KINDS = bytes(_KIND_OF.get(code, _OTHER) for code in range(256))


@SOURCES.register("yolo")
class YoloSource(AnnotatedSource):
    """A YOLO data set. The labels of an image in `images` are in `labels`, else next to the image. An image
    with no label file, or an empty one, is background.
    """

    format = "yolo"
    box_order = "cxcywh"
    numbers_classes = True
    expects = "data.yaml with names and train, or images/ with labels/*.txt, or a .txt next to each image"

    @classmethod
    def detect(cls, path: Path) -> bool:
        return bool(find_yamls(path)) or (path.is_dir() and any(map(_has_labels, _likely_folders(path))))

    @classmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        yamls = find_yamls(path)
        if len(yamls) > 1:
            message = f"{path}: contains several data files: {', '.join(file.name for file in yamls)}"
            raise DataError(message, advice="give the path of one of them")
        if yamls:
            data = read_data_yaml(yamls[0])
            collector = Collector(data.root)
            names: tuple[str, ...] | None = data.classes
            images: list[tuple[str | None, Path]] = [*find_images(data, collector)]
        elif path.is_dir() and cls.detect(path):
            collector = Collector(path)
            files = [file for name in _NAME_FILES if (file := path / name).is_file()]
            names = tuple(read_lines(files[0])) if files else None
            folder = path / "images" if (path / "images").is_dir() else path
            images = collector.assign_splits(files_below(folder, IMAGE_SUFFIXES))
        else:
            raise DataError(f"{path}: is not a YOLO data set", advice=f"looked for {cls.expects}")
        return collector, _collect(images, names, collector)


def _likely_folders(root: Path) -> Iterator[Path]:
    """Yield folders that may hold images with labels, without a search of the whole tree."""
    for parent in (root, root / "images"):
        yield parent
        yield from (parent / name for name in names_in(parent) if split_of_folder(name))
    yield from (root / name / "images" for name in names_in(root) if split_of_folder(name))


def _has_labels(folder: Path) -> bool:
    labels = {f"{stem}.txt" for stem in _image_stems(folder)}
    folders = filter(None, [folder, _label_folder(folder)])
    return any(name in labels for parent in folders for name in names_in(parent))


def _image_stems(folder: Path) -> set[str]:
    return {stem_of(name) for name in names_in(folder) if suffix_of(name) in IMAGE_SUFFIXES}


@lru_cache(maxsize=1024)
def _label_folder(folder: Path) -> Path | None:
    """Return the path with its last `images` replaced by `labels`, or None if it has none."""
    parts = folder.parts
    for i in reversed(range(len(parts))):
        if parts[i] == "images":
            return Path(*parts[:i], "labels", *parts[i + 1 :])
    return None


def _find_label_files(images: Iterable[Path]) -> tuple[list[str], list[Path]]:
    """Return the path of each image's label file, whether it exists or not, and the folders of the images.
    Each folder is listed once: a lookup per file is slow.
    """
    # image folder -> (label folder, file names in it, file names in the image folder)
    listings: dict[str, tuple[str, frozenset[str], frozenset[str]]] = {}
    files = []
    for image in images:
        folder, _, name = str(image).rpartition(os.sep)
        folder = folder or str(image.parent)  # "." for a bare file name
        if folder not in listings:
            mirrored = _label_folder(image.parent)
            listed, beside = names_in(mirrored) if mirrored else (), names_in(image.parent)
            listings[folder] = str(mirrored or image.parent), frozenset(listed), frozenset(beside)
        labels, in_labels, in_folder = listings[folder]
        label = f"{stem_of(name)}.txt"
        is_beside = label in in_folder and label not in in_labels
        files.append(f"{folder if is_beside else labels}{os.sep}{label}")
    return files, sorted(map(Path, listings))


def _collect(
    images: Sequence[tuple[str | None, Path]], names: tuple[str, ...] | None, collector: Collector
) -> tuple[str, ...]:
    """Add every image with its labels. Return the classes, which are numbered if they have no names."""
    files, image_folders = _find_label_files(image for _, image in images)
    texts = [_read_text(file) for file in files]
    tables = read_tables([text if isinstance(text, bytes) else b"" for text in texts], _MAX_CLASSES)
    used = set[int]()
    for (split, image), file, text, table in zip(images, files, texts, tables, strict=True):
        source = collector.relative_path(image if text is None else file)
        objects = table or _read_labels(text, source, _MAX_CLASSES, collector)
        used.update(table.labels.tolist() if table else [obj.label for obj in objects or ()])
        collector.add(Annotation(file=source, image=image, objects=objects, relative=True), split)
    _report_labels_without_image(image_folders, collector)
    if names:
        return names
    collector.note_gaps(str(collector.root), sorted(used | {0}), "no objects of class ids")
    return tuple(f"class{i}" for i in range(max(used, default=-1) + 1))


class _LineError(Exception):
    """A line of labels cannot be used; the message says why."""

    def __init__(self, kind: ProblemKind, message: str) -> None:
        super().__init__(message)
        self.kind: ProblemKind = kind


def _read_text(file: str) -> bytes | OSError | None:
    """Return the content of a file, the error of reading it, or None if it does not exist."""
    try:
        data = read_start(file, _LABEL_BYTES)
        return Path(file).read_bytes() if len(data) == _LABEL_BYTES else data
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def _read_labels(
    text: bytes | OSError | None, file: str, num_classes: int, collector: Collector
) -> list[Object] | None:
    """Parse labels line by line, leaving out faulty lines; None if there is no file."""
    if text is None:
        return None
    try:
        if isinstance(text, OSError):
            raise text
        lines = text.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        collector.leave_out("unreadable-annotation", file, f"cannot be read as text: {error}")
        return []
    objects = []
    for number, line in enumerate(lines, 1):
        try:
            if words := line.split():
                label, box = _parse_words(words, num_classes)
                objects.append(Object(f"line {number}", box, label))
        except _LineError as error:
            collector.leave_out(error.kind, file, str(error), at=f"line {number}", value=line[:80])
    return objects


def _parse_words(words: list[str], num_classes: int) -> tuple[int, Box]:
    """Return the label, and the box in fractions of the image."""
    try:
        label, *numbers = map(float, words)
    except ValueError:
        raise _LineError("box-malformed", f"is not a line of numbers: {' '.join(words)[:80]}") from None
    if not label.is_integer() or not 0 <= label < num_classes:
        raise _LineError("unknown-class", f"there is no class {label:g}")
    if len(numbers) == 4:
        x, y, width, height = numbers
        box: Box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    elif len(numbers) >= 6 and len(numbers) % 2 == 0:
        box = (min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2]))
    else:
        message = f"has {len(numbers)} numbers after the class, not 4 or the x, y pairs of a polygon"
        raise _LineError("box-malformed", message)
    return int(label), box


def _report_labels_without_image(image_folders: Iterable[Path], collector: Collector) -> None:
    for folder in image_folders:
        labels, stems = _label_folder(folder), _image_stems(folder)
        for name in names_in(labels) if labels else ():
            if name.endswith(".txt") and name != "classes.txt" and stem_of(name) not in stems:
                file = collector.relative_path(f"{labels}{os.sep}{name}")
                collector.leave_out("annotation-without-image", file, "has no image")


def read_tables(texts: Sequence[bytes], num_classes: int) -> list[ObjectTable | None]:
    """Return the objects of label files that are plain tables, boxes in fractions of the image: nearly all
    are, and parsing them line by line would take most of the time of opening a set. None stands for a file
    that is empty or not a plain table of `class x y width height`, classes below `num_classes`.
    """
    texts = [text.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n" for text in texts]
    are_tables = _are_tables(texts)
    numbers = [_numbers(text) if is_table else [] for text, is_table in zip(texts, are_tables, strict=True)]
    rows = np.array(list(itertools.chain.from_iterable(numbers)), dtype=np.float64).reshape(-1, _COLUMNS)
    classes, centers, halves = rows[:, 0], rows[:, 1:3], rows[:, 3:] / 2
    known = (classes >= 0) & (classes < num_classes) & (classes == np.floor(classes))
    num_unknown = np.cumsum(np.append(0, ~known)).tolist()
    labels = np.where(known, classes, 0).astype(np.int64)
    with np.errstate(invalid="ignore"):  # an infinite side is reported when the box is repaired
        boxes = np.concatenate([centers - halves, centers + halves], axis=1)
    ends = itertools.accumulate((len(values) // _COLUMNS for values in numbers), initial=0)
    return [
        ObjectTable(labels[start:end], boxes[start:end])
        if start < end and num_unknown[start] == num_unknown[end]
        else None
        for start, end in itertools.pairwise(ends)
    ]


def _are_tables(texts: Sequence[bytes]) -> list[bool]:
    """Check that each text has lines of five words with one space between, and ends with a newline."""
    kinds = np.frombuffer(b"".join(texts).translate(_KINDS), dtype=np.uint8)
    at = np.flatnonzero(kinds)  # positions where words end
    ends = np.cumsum([len(text) for text in texts])
    last = np.searchsorted(at, ends)  # for each text, the first word end after it
    first = np.append(0, last)[:-1]
    column = (np.arange(len(at)) - np.repeat(first, last - first)) % _COLUMNS
    wanted = np.where(column == _COLUMNS - 1, _NEWLINE, _SPACE)
    empty = np.diff(at, prepend=-1) == 1
    num_wrong = np.cumsum(np.append(0, (kinds[at] != wanted) | empty))
    good: list[bool] = ((num_wrong[last] == num_wrong[first]) & ((last - first) % _COLUMNS == 0)).tolist()
    return good


def _numbers(text: bytes) -> list[float]:
    try:
        return list(map(float, text.split()))
    except ValueError:
        return []
