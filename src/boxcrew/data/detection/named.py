"""The base of formats whose objects carry the names of their classes, as most annotation tools write them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.registry import suggest
from boxcrew.data.detection.annotations import AnnotatedSource, Annotation, Collector, Object
from boxcrew.data.detection.image_index import ImageIndex
from boxcrew.data.folders import files_below, read_lines
from boxcrew.data.images.reading import IMAGE_SUFFIXES

NamedObject = tuple[str, Object]
"""The name of a class and an object of it, whose label is not known yet and counts as -1."""


@dataclass(frozen=True, kw_only=True)
class NamedAnnotation:
    """The annotation of one image, as written in its file."""

    file: Path  # the annotation file
    at: str = ""  # position in the file
    image: str  # as the file names it
    folders: Sequence[Path] = ()  # where to look for the image first
    objects: Sequence[NamedObject]
    relative: bool = False  # boxes are in fractions of the upright image, not in pixels
    size: tuple[int, int] | None = None  # (width, height) as annotated
    split: str | None = None


class NamedSource(AnnotatedSource):
    """A set whose objects carry class names. The classes are those that `parse` declares or, if none are, the
    lines of `classes.txt` or else all names in use, sorted.
    """

    @classmethod
    @abstractmethod
    def root_of(cls, path: Path) -> Path:
        """Return the folder that contains annotations and images, or raise `DataError`."""

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
        used = sorted({name for annotation in parsed for name, _ in annotation.objects})
        listed = root / "classes.txt"
        classes = cls.declared_classes(path) or tuple(read_lines(listed) if listed.is_file() else used)
        labels = {name: label for label, name in enumerate(classes)}
        splits = {annotation.split for annotation in parsed}
        for annotation in parsed:
            file = collector.relative_path(annotation.file)
            image = index.find(annotation.image, (*annotation.folders, annotation.file.parent))
            if not isinstance(image, Path):
                kind, message = image
                collector.leave_out(kind, file, message, at=annotation.at, value=annotation.image)
            elif annotation.split is None and len(splits) > 1:
                message = "belongs to no split, but others do"
                collector.leave_out("no-split", file, message, at=annotation.at)
            else:
                objects = tuple(_labelled(annotation, labels, file, collector))
                collector.add(_with_labels(annotation, file, image, objects), annotation.split)
        if path.is_dir():
            report_unlisted(root, collector)
        return collector, classes


def _labelled(
    annotation: NamedAnnotation, labels: dict[str, int], file: str, collector: Collector
) -> Iterator[Object]:
    for name, obj in annotation.objects:
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


def report_unlisted(root: Path, collector: Collector) -> None:
    """Report the images of the set that no annotation names. They may just not be annotated yet, so they are
    left out, not used as background.
    """
    for image in files_below(root, IMAGE_SUFFIXES):
        if not collector.has_image(image):
            message = "is in no annotation file; assumed to be not annotated yet"
            collector.leave_out("image-without-annotation", collector.relative_path(image), message)
