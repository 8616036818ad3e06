"""Annotations of all formats, collected by their readers and turned into records with repaired boxes."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import numpy as np

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.box_repair import Box, Floats64
from boxcrew.data.checks.problem import Problem, ProblemKind, first_problem
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions, BoxOrder
from boxcrew.data.detection.record_builder import AS_THEY_ARE, PendingImage, Reading, make_records
from boxcrew.data.detection.records import Records
from boxcrew.data.detection.source import SPLITS, Source
from boxcrew.data.folders import split_of_path
from boxcrew.data.images.packed import ImagePath

VAL_SHARE = 0.2
"""The share of the training images that becomes the validation split where a set has none."""


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause Python's search for cyclic garbage, which took a fifth of the time of opening a set: annotations
    are very many objects without cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Object(NamedTuple):
    """One annotated object, its box not checked yet. A tuple, because a set may have millions."""

    at: str  # position in the annotation file, such as "line 3"
    box: Box
    label: int  # 0..num_classes-1
    difficult: bool = False
    crowd: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ObjectTable:
    """The objects of a YOLO label file as arrays, because a set may have millions. The first is on line 1."""

    labels: Ints  # (N,)
    boxes: Floats64  # (N, 4)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Object]:
        rows = zip(self.labels.tolist(), self.boxes.tolist(), strict=True)
        for number, (label, (x0, y0, x1, y1)) in enumerate(rows, 1):
            yield Object(at=f"line {number}", box=(x0, y0, x1, y1), label=label)


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """The annotation of one image, as written in its file."""

    file: str  # the annotation file
    at: str = ""  # position in the file
    image: ImagePath
    objects: Sequence[Object] | ObjectTable | None  # None where there is no annotation: a background image
    relative: bool = False  # boxes are in fractions of the upright image, not in pixels
    size: tuple[int, int] | None = None  # (width, height) as annotated; None or zeros if unknown

    def agrees_with(self, size: tuple[int, int]) -> bool:
        """Return whether the image has the size that is annotated, if one is."""
        return self.size is None or min(self.size) <= 0 or self.size == size

    def arrays(self) -> tuple[Floats64, Ints, Bools]:
        """Return boxes (N, 4), labels (N,) and flags (N, 2: difficult, crowd) of the objects."""
        if isinstance(self.objects, ObjectTable):
            return self.objects.boxes, self.objects.labels, np.zeros((len(self.objects), 2), dtype=np.bool_)
        objects = self.objects or ()
        return (
            np.array([obj.box for obj in objects], dtype=np.float64).reshape(-1, 4),
            np.array([obj.label for obj in objects], dtype=np.int64),
            np.array([(obj.difficult, obj.crowd) for obj in objects], dtype=np.bool_).reshape(-1, 2),
        )

    def with_arrays(self, boxes: Floats64, labels: Ints) -> Annotation:
        """Return this with other boxes (N, 4) and labels (N,) of the same objects."""
        if self.objects is None:
            return self
        if isinstance(self.objects, ObjectTable):
            return replace(self, objects=ObjectTable(labels, boxes))
        rows = zip(self.objects, boxes.tolist(), labels.tolist(), strict=True)
        return replace(self, objects=tuple(obj._replace(box=tuple(box), label=n) for obj, box, n in rows))


class Collector:
    """Collects the annotations and problems of a set, in the order of reading. `finish` then reads the image
    headers, repairs boxes and makes the splits, for all images together.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entries: list[Problem | PendingImage] = []
        self._images: dict[str, ImagePath] = {}  # by key, unusable ones included
        self.inputs: list[Path] = []  # the files that say what belongs to the set, unless all are in the root
        self._folders: dict[str, str] = {}  # relative to the root: `os.path.relpath` is slow

    def leave_out(self, kind: ProblemKind, file: str, message: str, *, at: str = "", value: str = "") -> None:
        self._entries.append(Problem(kind, file, message, "left out", at=at, value=value))

    def note(
        self, kind: ProblemKind, file: str, message: str, *, at: str = "", value: str = "", count: int = 1
    ) -> None:
        self._entries.append(Problem(kind, file, message, "noted", at=at, value=value, count=count))

    def note_gaps(self, file: str, class_ids: Sequence[int], message: str) -> None:
        """Note the ids that are missing among ascending class ids, if any."""
        between, present = range(class_ids[0], class_ids[-1]) if class_ids else (), frozenset(class_ids)
        # An id may be huge by mistake, so the range is not searched to its end.
        if missing := list(itertools.islice((i for i in between if i not in present), 9)):
            value = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            self.note("class-id-gap", file, f"{message} {value}", value=value)

    def relative_path(self, path: ImagePath | str) -> str:
        """Return `path` relative to the root, with forward slashes, for keys and messages."""
        folder, separator, name = str(path).rpartition(os.sep)  # three times as fast as os.path.split
        folder = folder or separator
        if name in {"", ".", ".."}:
            return os.path.relpath(str(path), self.root).replace(os.sep, "/")
        if folder not in self._folders:
            relative = os.path.relpath(folder or ".", self.root).replace(os.sep, "/")
            self._folders[folder] = "" if relative == "." else f"{relative}/"
        return self._folders[folder] + name

    def assign_splits(self, files: Iterable[Path]) -> list[tuple[str | None, Path]]:
        """Return each file with the split that one of its folders is named after. All splits are None if no
        folder names one; if some do, files outside of those are left out.
        """
        assigned = [(split_of_path(file, self.root), file) for file in files]
        if not any(split for split, _ in assigned):
            return assigned
        for split, file in assigned:
            if split is None:
                self.leave_out("no-split", self.relative_path(file), "is not in any of the split folders")
        return [(split, file) for split, file in assigned if split]

    def has_image(self, image: Path) -> bool:
        """Return whether an annotation of this image was added, usable or not."""
        return self.relative_path(image) in self._images

    def image_folders(self) -> list[Path]:
        """Return the folders of all annotated images, sorted."""
        return sorted({image.parent for image in self._images.values() if isinstance(image, Path)})

    def add(self, annotation: Annotation, split: str | None) -> None:
        """Add an annotation; `split` is None if the set has no splits."""
        key = self.relative_path(annotation.image)
        self._images.setdefault(key, annotation.image)
        self._entries.append(PendingImage(annotation, split, key))

    def finish(
        self, *, seed: int, reading: Reading = AS_THEY_ARE
    ) -> tuple[dict[str, Records], tuple[Problem, ...]]:
        """Return the records of each split and all problems. A missing val split is drawn from train."""
        made = make_records(self._entries, reading)
        root = str(self.root)
        mismatches = [
            Problem("cause", root, each.message, "noted", value=each.settings) for each in made.mismatches
        ]
        return self.complete(made.by_split(), [*mismatches, *made.problems], seed=seed)

    @property
    def problems(self) -> list[Problem]:
        """The problems so far."""
        return [entry for entry in self._entries if isinstance(entry, Problem)]

    def complete(
        self, splits: dict[str, Records], problems: list[Problem], *, seed: int
    ) -> tuple[dict[str, Records], tuple[Problem, ...]]:
        """Return the splits in their order, with a val split if there is none, and all problems."""
        train = splits.get("train")
        if not train:
            available = " and ".join(sorted(splits))
            only = f"it has images only for {available}; " if available else ""
            advice = only + (first_problem(problems) or "name a split 'train', or define no splits at all")
            raise DataError(f"{self.root}: has no usable training image", advice=advice)
        if "val" not in splits and len(train) > 1:
            splits["train"], splits["val"] = split_by_seed(train, seed=seed)
            held = f"{len(splits['val'])} of its {len(train)} training images"
            message = f"has no validation split; {held} are used for validation (seed {seed})"
            problems.append(Problem("made-split", str(self.root), message, "noted"))
        return {name: splits[name] for name in SPLITS if name in splits}, tuple(problems)


class AnnotatedSource(Source):
    """A set whose annotations are read from files."""

    box_order: ClassVar[BoxOrder] = "xyxy"  # of the four numbers of a box in the files
    numbers_classes: ClassVar[bool] = False  # the files hold the numbers of classes, not their names

    @classmethod
    @garbage_collection_paused()
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        if options.first_class and not cls.numbers_classes:
            message = f"data.first_class={options.first_class}: classes have no numbers in {cls.format} files"
            raise UsageError(message, advice="leave it out")
        collector, classes = cls.collect(path)
        reading = Reading(
            order=cls.box_order,
            options=options,
            num_classes=len(classes),
            numbers_classes=cls.numbers_classes,
        )
        splits, problems = collector.finish(seed=seed, reading=reading)
        opened = cls(
            root=collector.root,
            classes=classes,
            splits=splits,
            problems=problems,
            inputs=tuple(collector.inputs),
        )
        distinct = tuple(dict.fromkeys(classes))  # those of the same name are one
        return opened if len(distinct) == len(classes) else opened.with_classes(distinct)

    @classmethod
    @abstractmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        """Read the annotations at `path`. Return all of them, and the classes. If the files hold the numbers
        of classes, those that are too high are left to the collector, and names may occur twice.
        """


def seeded_draw(seed: int, key: str) -> bytes:
    """Return 16 random bytes that depend on the seed and the key only."""
    return hashlib.blake2b(f"{seed}:{key}".encode(errors="surrogateescape"), digest_size=16).digest()


def split_by_seed(records: Records, *, seed: int) -> tuple[Records, Records]:
    """Return (train, val), each in the original order, at least one record in both if there are two or more.
    The split depends only on the keys and the seed, and adding an image hardly moves the others.
    """
    before = f"{seed}:".encode()
    draws = [hashlib.blake2b(before + key, digest_size=16).digest() for key in records.iter_raw_keys()]
    held = np.zeros(len(records), dtype=np.bool_)
    held[np.argsort(np.array(draws), kind="stable")[: max(1, round(len(records) * VAL_SHARE))]] = True
    return records.select(~held), records.select(held)
