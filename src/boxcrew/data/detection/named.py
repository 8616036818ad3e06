"""The base of formats whose objects carry the names of their classes, as most annotation tools write them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.core.registry import suggest
from boxcrew.core.units import counted
from boxcrew.data.detection.annotations import AnnotatedSource, Annotation, Collector, Object
from boxcrew.data.detection.image_index import ImageIndex
from boxcrew.data.folders import files_below, read_lines, split_of_path
from boxcrew.data.images.reading import IMAGE_SUFFIXES

NamedObject = tuple[str, Object]
"""The name of a class and an object of it, whose label is not known yet and counts as -1."""


@dataclass(frozen=True, kw_only=True)
class NamedAnnotation:
    """The annotation of one image, as written in its file."""

    file: Path  # the annotation file
    at: str = ""  # position in the file
    image: str  # as the file names it
    aliases: Sequence[str] = ()  # other names to look for if there is no such image
    folders: Sequence[Path] = ()  # where to look for the image first
    objects: Sequence[NamedObject] | None  # None if the image is listed but was not annotated yet
    relative: bool = False  # boxes are in fractions of the upright image, not in pixels
    size: tuple[int, int] | None = None  # (width, height) as annotated
    split: str | None = None  # if no annotation has one, folders named train, val and test make the splits


class NamedSource(AnnotatedSource):
    """A set whose objects carry class names. The classes are those that `parse` declares or, if none are, the
    lines of `classes.txt` or else all names in use, sorted.
    """

    @classmethod
    @abstractmethod
    def root_of(cls, path: Path) -> Path:
        """Return the folder that contains annotations and images, or raise `DataError`."""

    @classmethod
    def not_found(cls, path: Path, problem: str) -> DataError:
        """Return the error that there is no such set at `path`. `problem` says what is there instead."""
        reason = problem if path.exists() else "no such file or folder"
        return DataError(f"{path}: {reason}", advice=f"looked for {cls.expects}")

    @classmethod
    @abstractmethod
    def parse(cls, path: Path, collector: Collector) -> Iterator[NamedAnnotation]:
        """Yield the annotations. What cannot be used is left out with a problem of the collector."""

    @classmethod
    def declared_classes(cls, path: Path) -> tuple[str, ...]:  # noqa: ARG003 - most formats have none
        """Return the class names that the set declares apart from its objects, or none."""
        return ()

    @classmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        root = cls.root_of(path)
        collector, index = Collector(root), ImageIndex(root)
        parsed = list(cls.parse(path, collector))
        used = sorted({name for annotation in parsed for name, _ in annotation.objects or ()})
        listed = root / "classes.txt"
        classes = cls.declared_classes(path) or (read_lines(listed) if listed.is_file() else used)
        labels = {name: label for label, name in enumerate(dict.fromkeys(classes))}
        located = [
            (annotation, image) for annotation in parsed if (image := _locate(annotation, index, collector))
        ]
        if parsed and not located:
            raise _no_images(root, parsed)
        for annotation, image, split in _with_splits(located, collector):
            file = collector.relative_path(annotation.file)
            if annotation.objects is None:
                message = f"{collector.relative_path(image)} is not annotated yet"
                collector.leave_out("image-without-annotation", file, message, at=annotation.at)
            else:
                objects = tuple(_labeled(annotation.objects, labels, file, collector))
                collector.add(_with_labels(annotation, file, image, objects), split)
        if path.is_dir():
            report_unlisted(root, collector, known={image for _, image in located})
        return collector, tuple(labels)


def _locate(annotation: NamedAnnotation, index: ImageIndex, collector: Collector) -> Path | None:
    folders = (*annotation.folders, annotation.file.parent)
    image = index.find(annotation.image, folders)
    if isinstance(image, Path):
        return image
    for alias in annotation.aliases:
        if isinstance(path := index.find(alias, folders), Path):
            return path
    kind, message = image
    file = collector.relative_path(annotation.file)
    collector.leave_out(kind, file, message, at=annotation.at, value=annotation.image)
    return None


def _no_images(root: Path, parsed: Sequence[NamedAnnotation]) -> DataError:
    count, first = counted(len(parsed), "annotated image"), parsed[0]
    message = f"{root}: has none of the {count}, such as {first.image[:80]} ({first.file.name})"
    return DataError(message, advice=f"copy the images into {root}; which folder they are in does not matter")


def _with_splits(
    located: Sequence[tuple[NamedAnnotation, Path]], collector: Collector
) -> Iterator[tuple[NamedAnnotation, Path, str | None]]:
    """Yield the annotations with their images and splits; those without a split are left out if others have
    one.
    """
    splits = [annotation.split for annotation, _ in located]
    if not any(splits):
        splits = [split_of_path(image, collector.root) for _, image in located]
    for (annotation, image), split in zip(located, splits, strict=True):
        if split is None and any(splits):
            file, message = collector.relative_path(annotation.file), "belongs to no split, but others do"
            collector.leave_out("no-split", file, message, at=annotation.at)
        else:
            yield annotation, image, split


def _labeled(
    objects: Sequence[NamedObject], labels: dict[str, int], file: str, collector: Collector
) -> Iterator[Object]:
    for name, obj in objects:
        if name in labels:
            yield obj._replace(label=labels[name])
        else:
            message = f"class {name!r} is not among the classes of the set; {suggest(name, list(labels))}"
            collector.leave_out("unknown-class", file, message, at=obj.at, value=name)


def _with_labels(
    annotation: NamedAnnotation, file: str, image: Path, objects: tuple[Object, ...]
) -> Annotation:
    return Annotation(
        file=file,
        at=annotation.at,
        image=image,
        objects=objects,
        relative=annotation.relative,
        size=annotation.size,
    )


def report_unlisted(root: Path, collector: Collector, *, known: Collection[Path] = ()) -> None:
    """Report the images of the set that no annotation names, except for those of `known`. They may just not
    be annotated yet, so they are left out, not used as background.
    """
    for image in files_below(root, IMAGE_SUFFIXES):
        if image not in known and not collector.has_image(image):
            message = "is in no annotation file; assumed to be not annotated yet"
            collector.leave_out("image-without-annotation", collector.relative_path(image), message)
