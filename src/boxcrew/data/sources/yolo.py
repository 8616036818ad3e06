"""YOLO: one text file of `class x y width height` in fractions for each image, with Ultralytics' data.yaml or
without. Segmentation polygons become their bounding boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Self

from boxcrew.core.errors import DataError
from boxcrew.data.annotations import Annotation, Gathering, Object
from boxcrew.data.box_repair import Box
from boxcrew.data.data_yaml import described_splits, find_yamls, read_description
from boxcrew.data.image import IMAGE_SUFFIXES
from boxcrew.data.layout import ImageFinder, files_below, read_lines, sort_paths, split_of_folder
from boxcrew.data.problem import Kind
from boxcrew.data.source import SOURCES, Source

_NAME_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "labels/obj.names")
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
            yield from (
                child for child in sorted(parent.iterdir()) if child.is_dir() and split_of_folder(child.name)
            )
    yield from (child / "images" for child in sorted(root.iterdir()) if split_of_folder(child.name))


def _has_labels(folder: Path) -> bool:
    finder = ImageFinder()
    places = [folder, _label_folder(folder)]
    texts = (file for place in places if place for file in place.glob("*.txt"))
    return any(finder.find([folder], file.stem) for file in texts)


def _label_file(image: Path) -> Path:
    """Where the labels of an image are, or would be."""
    mirrored = _label_folder(image.parent)
    beside = image.with_suffix(".txt")
    if mirrored is None:
        return beside
    label = mirrored / beside.name
    return beside if not label.is_file() and beside.is_file() else label


@lru_cache(maxsize=1024)
def _label_folder(folder: Path) -> Path | None:
    """The path with its last `images` replaced by `labels`."""
    parts = folder.parts
    for i in reversed(range(len(parts))):
        if parts[i] == "images":
            return Path(*parts[:i], "labels", *parts[i + 1 :])
    return None


def _names(root: Path) -> tuple[str, ...] | None:
    file = next((root / name for name in _NAME_FILES if (root / name).is_file()), None)
    return tuple(read_lines(file)) if file else None


def _gather(
    images: Iterable[tuple[str | None, Path]], named: tuple[str, ...] | None, gathering: Gathering
) -> tuple[str, ...]:
    """Adds every image with its labels; gives the classes, which are numbered where they have no names."""
    used, folders = set[int](), set[Path]()
    for split, image in images:
        label = _label_file(image)
        folders.add(image.parent)
        objects = _read_labels(label, len(named) if named else _MAX_UNNAMED_CLASSES, gathering)
        used.update(thing.label for thing in objects or ())
        file = gathering.place(label if objects is not None else image)
        gathering.add(Annotation(file=file, image=image, objects=objects, relative=True), split)
    _report_lone_labels(sorted(folders), gathering)
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


def _read_labels(file: Path, num_classes: int, gathering: Gathering) -> tuple[Object, ...] | None:
    """None if there is no file."""
    place = gathering.place(file)
    try:
        lines = file.read_bytes().decode("utf-8-sig").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        gathering.leave_out("unreadable-annotation", place, f"cannot be read as text: {error}")
        return ()
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
            objects.append(Object(at=at, box=box, label=label))
    return tuple(objects)


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
    finder = ImageFinder()
    for folder in image_folders:
        labels = _label_folder(folder)
        for file in sort_paths(labels.glob("*.txt")) if labels else []:
            if file.name != "classes.txt" and finder.find([folder], file.stem) is None:
                gathering.leave_out("annotation-without-image", gathering.place(file), "has no image")
