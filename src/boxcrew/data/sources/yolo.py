"""YOLO: one text file of `class x y width height` in fractions for each image, with Ultralytics' data.yaml or
without. Segmentation polygons become their bounding boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

from boxcrew.core.errors import DataError
from boxcrew.data.annotations import Annotation, Box, Gathering, Object
from boxcrew.data.data_yaml import described_splits, find_yamls, read_description
from boxcrew.data.image import IMAGE_SUFFIXES
from boxcrew.data.layout import ImageFinder, files_below, read_lines, split_of_folder
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
    num_classes, folders = 0, set[Path]()
    for split, image in images:
        label = _label_file(image)
        folders.add(image.parent)
        objects = _read_labels(label, len(named) if named else _MAX_UNNAMED_CLASSES, gathering)
        num_classes = max([num_classes, *(thing.label + 1 for thing in objects or ())])
        where = gathering.place(label if objects is not None else image)
        annotation = Annotation(where=where, image=image, objects=objects or (), relative=True)
        if gathering.add(annotation, split) and objects is None:
            gathering.note(where, "has no label file; taken as background")
    _report_lone_labels(sorted(folders), gathering)
    return named or tuple(f"class{i}" for i in range(num_classes))


def _read_labels(file: Path, num_classes: int, gathering: Gathering) -> tuple[Object, ...] | None:
    """None if there is no file."""
    if not file.is_file():
        return None
    place = gathering.place(file)
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        gathering.leave_out(place, f"cannot be read as text: {error}")
        return ()
    objects = []
    for number, line in enumerate(lines, 1):
        where = f"{place} line {number}"
        if not line.strip():
            continue
        try:
            objects.append(replace(_parse_line(line, num_classes), where=where))
        except ValueError as error:
            gathering.leave_out(where, str(error))
    return tuple(objects)


def _parse_line(line: str, num_classes: int) -> Object:
    """`ValueError` says what is wrong with it."""
    try:
        kind, *numbers = (float(word) for word in line.split())
    except ValueError:
        raise ValueError(f"is not a line of numbers: {line[:80]}") from None
    if not kind.is_integer() or not 0 <= kind < num_classes:
        raise ValueError(f"there is no class {kind:g}; classes are 0 to {num_classes - 1}")
    if len(numbers) == 4:
        x, y, width, height = numbers
        if width < 0 or height < 0:
            raise ValueError(f"width and height must not be negative: {line[:80]}")
        box: Box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    elif len(numbers) >= 6 and len(numbers) % 2 == 0:
        box = (min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2]))
    else:
        raise ValueError(f"has {len(numbers)} numbers after the class, not 4 or the pairs of a polygon")
    return Object(where="", box=box, label=int(kind))


def _report_lone_labels(image_folders: Iterable[Path], gathering: Gathering) -> None:
    finder = ImageFinder()
    for folder in image_folders:
        labels = _label_folder(folder)
        for file in sorted(labels.glob("*.txt")) if labels else []:
            if file.name != "classes.txt" and finder.find([folder], file.stem) is None:
                gathering.leave_out(gathering.place(file), "has no image")
