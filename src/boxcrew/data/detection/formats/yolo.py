"""Reader of YOLO: a text file of labels for each image, with Ultralytics' data.yaml, with Darknet's obj.data,
or without. Polygons and rotated boxes become their bounding boxes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.data.detection.annotations import AnnotatedSource, Annotation, Collector
from boxcrew.data.detection.darknet import find_darknet, read_darknet
from boxcrew.data.detection.data_file import MAX_CLASSES, find_images
from boxcrew.data.detection.data_yaml import find_yamls, read_data_yaml
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.detection.yolo_labels import LineParser, read_tables, read_text
from boxcrew.data.folders import files_below, names_in, read_lines, split_of_folder, stem_of, suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

_NAME_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "labels/obj.names")


@SOURCES.register("yolo")
class YoloSource(AnnotatedSource):
    """A YOLO data set. The labels of an image in `images` are in `labels`, else next to the image. An image
    with no label file, or an empty one, is background.
    """

    format = "yolo"
    box_order = "cxcywh"
    numbers_classes = True
    expects = (
        "data.yaml or obj.data with names and train, or images/ with labels/, or a .txt next to each image"
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        if find_yamls(path) or find_darknet(path):
            return True
        return path.is_dir() and any(map(_has_labels, _likely_folders(path)))

    @classmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        files = find_yamls(path)
        read = read_data_yaml if files else read_darknet
        files = files or find_darknet(path)
        if len(files) > 1:
            message = f"{path}: contains several data files: {', '.join(file.name for file in files)}"
            raise DataError(message, advice="give the path of one of them")
        if files:
            data = read(files[0])
            collector = Collector(data.root)
            names: tuple[str, ...] | None = data.classes
            images: list[tuple[str | None, Path]] = [*find_images(data, collector)]
        elif path.is_dir() and cls.detect(path):
            collector = Collector(path)
            listed = [file for name in _NAME_FILES if (file := path / name).is_file()]
            names = tuple(read_lines(listed[0])) if listed else None
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
    folders = filter(None, [folder, _label_folder(folder)])
    texts = {stem_of(name) for parent in folders for name in names_in(parent) if name.endswith(".txt")}
    return bool(texts) and not texts.isdisjoint(_image_stems(folder))


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
    texts = [read_text(file) for file in files]
    tables, num_confidences = read_tables(
        [text if isinstance(text, bytes) else b"" for text in texts], MAX_CLASSES
    )
    parser, used = LineParser(MAX_CLASSES, collector), set[int]()
    parser.num_confidences += num_confidences
    for (split, image), file, text, table in zip(images, files, texts, tables, strict=True):
        source = collector.relative_path(image if text is None else file)
        objects = table or parser.parse(text, source)
        used.update(table.labels.tolist() if table else [obj.label for obj in objects or ()])
        collector.add(Annotation(file=source, image=image, objects=objects, relative=True), split)
    parser.report()
    _report_labels_without_image(image_folders, collector)
    if names:
        _note_same_names(names, collector)
        return names
    collector.note_gaps(str(collector.root), sorted(used | {0}), "no objects of class ids")
    return tuple(f"class{i}" for i in range(max(used, default=-1) + 1))


def _note_same_names(names: tuple[str, ...], collector: Collector) -> None:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        message = f"classes of the same name are merged into one: {twice}"
        collector.note("duplicate-class", str(collector.root), message, value=twice)


def _report_labels_without_image(image_folders: Iterable[Path], collector: Collector) -> None:
    for folder in image_folders:
        labels, stems = _label_folder(folder), _image_stems(folder)
        for name in names_in(labels) if labels else ():
            if name.endswith(".txt") and name != "classes.txt" and stem_of(name) not in stems:
                file = collector.relative_path(f"{labels}{os.sep}{name}")
                collector.leave_out("annotation-without-image", file, "has no image")
