"""Annotations of all formats, collected by their readers and turned into records with repaired boxes."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Bools, Ints, Target
from boxcrew.data.checks.box_repair import Box, Floats64, clip_clean, is_inside, repair, rotate_box, show_box
from boxcrew.data.checks.problem import Action, Problem, ProblemKind
from boxcrew.data.detection.source import SPLITS, Record, Source
from boxcrew.data.folders import split_of_path
from boxcrew.data.images.packed import ImagePath
from boxcrew.data.images.reading import Header, ImageError, read_header

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


class _Pending(NamedTuple):
    """An annotation that waits to become a record, together with all others."""

    annotation: Annotation
    split: str | None
    key: str


class Collector:
    """Collects the annotations and problems of a set, in the order of reading. `finish` then reads the image
    headers, repairs boxes and makes the splits, for all images together.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entries: list[Problem | _Pending] = []
        self._images: dict[str, ImagePath] = {}  # by key, unusable ones included
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
        self._entries.append(_Pending(annotation, split, key))

    def finish(self, *, seed: int) -> tuple[dict[str, tuple[Record, ...]], tuple[Problem, ...]]:
        """Return the records of each split and all problems. A missing val split is drawn from train."""
        records, problems = _make_records(self._entries)
        splits: dict[str, list[Record]] = {}
        for split, record in records:
            splits.setdefault(split or "train", []).append(record)
        train = splits.get("train", [])
        if not train:
            available = " and ".join(sorted({split for split, _ in records if split}))
            only = f"it has images only for {available}; " if available else ""
            first = f"first of {len(problems)} problems: {problems[0]}" if problems else ""
            advice = only + (first or "name a split 'train', or define no splits at all")
            raise DataError(f"{self.root}: has no usable training image", advice=advice)
        if "val" not in splits and len(train) > 1:
            splits["train"], splits["val"] = split_by_seed(train, seed=seed)
            held = f"{len(splits['val'])} of its {len(train)} training images"
            message = f"has no validation split; {held} are used for validation (seed {seed})"
            problems.append(Problem("made-split", str(self.root), message, "noted"))
        return {name: tuple(splits[name]) for name in SPLITS if name in splits}, tuple(problems)


class AnnotatedSource(Source):
    """A set whose annotations are read from files."""

    @classmethod
    @garbage_collection_paused()
    def open(cls, path: Path, *, seed: int = 0) -> Self:
        collector, classes = cls.collect(path)
        splits, problems = collector.finish(seed=seed)
        return cls(root=collector.root, classes=classes, splits=splits, problems=problems)

    @classmethod
    @abstractmethod
    def collect(cls, path: Path) -> tuple[Collector, tuple[str, ...]]:
        """Read the annotations at `path`. Return all of them, and the classes."""


def _make_records(
    entries: Sequence[Problem | _Pending],
) -> tuple[list[tuple[str | None, Record]], list[Problem]]:
    """Return the records with their splits, and all problems, in the order of the entries."""
    pending = [entry for entry in entries if isinstance(entry, _Pending)]
    headers = [_try_header(entry.annotation.image) for entry in pending]
    inputs = zip(headers, _clean_targets(pending, headers), strict=True)
    records: dict[str, tuple[str | None, Record]] = {}
    problems: list[Problem] = []
    for entry in entries:
        if isinstance(entry, Problem):
            problems.append(entry)
            continue
        header, target = next(inputs)
        key, image = entry.key, entry.annotation.image
        if key in records:
            problems.append(_duplicate_problem(entry, records[key][0]))
        elif isinstance(header, ImageError):
            problems.append(Problem(header.kind, key, header.message.removeprefix(f"{image}: "), "left out"))
        else:
            if target is None:
                target, faults = _repaired_target(entry.annotation, header)
                problems += faults
            if not len(target):
                problems.append(_background_problem(entry))
            record = Record(key=key, path=image, width=header.width, height=header.height, target=target)
            records[key] = (entry.split, record)
    return list(records.values()), problems


def _try_header(image: ImagePath) -> Header | ImageError:
    try:
        return read_header(image)
    except ImageError as error:
        return error


def _clean_targets(
    pending: Sequence[_Pending], headers: Sequence[Header | ImageError]
) -> Iterator[Target | None]:
    """Yield the target of each image, or None where something has to be repaired. All boxes of the set are
    checked together: one by one they would take most of the time of opening it.
    """
    per_image = [entry.annotation.objects or () for entry in pending]
    counts = np.array([len(objects) for objects in per_image], dtype=np.int64)
    real = [(0, 0) if isinstance(header, ImageError) else (header.width, header.height) for header in headers]
    sizes = np.repeat(np.array(real, dtype=np.float64).reshape(-1, 2), counts, axis=0)
    relative = np.repeat(np.array([entry.annotation.relative for entry in pending], dtype=np.bool_), counts)
    boxes, labels, flags = _concatenate(per_image)
    with np.errstate(invalid="ignore", over="ignore"):  # boxes that are not finite are not clean
        boxes[relative] *= np.tile(sizes[relative], 2)
        clipped, clean_boxes = clip_clean(boxes, sizes)
        num_faulty = np.cumsum(np.append(0, ~clean_boxes)).tolist()
        all_targets = Target.of(clipped, labels, difficult=flags[:, 0], crowd=flags[:, 1])
    ends = np.cumsum(np.append(0, counts)).tolist()
    for entry, size, (start, end) in zip(pending, real, itertools.pairwise(ends), strict=True):
        is_clean = num_faulty[start] == num_faulty[end] and entry.annotation.agrees_with(size)
        yield all_targets.select(slice(start, end)) if is_clean else None


def _concatenate(per_image: Sequence[Sequence[Object] | ObjectTable]) -> tuple[Floats64, Ints, Bools]:
    """Return boxes (N, 4), labels (N,) and flags (N, 2: difficult, crowd) of all objects."""
    boxes, labels = [np.empty((0, 4))], [np.empty(0, dtype=np.int64)]
    flags: list[tuple[bool, bool]] = []
    for objects in per_image:
        if isinstance(objects, ObjectTable):
            boxes.append(objects.boxes)
            labels.append(objects.labels)
            flags += [(False, False)] * len(objects)
        elif objects:
            boxes.append(np.array([obj.box for obj in objects], dtype=np.float64))
            labels.append(np.array([obj.label for obj in objects], dtype=np.int64))
            flags += [(obj.difficult, obj.crowd) for obj in objects]
    return np.concatenate(boxes), np.concatenate(labels), np.array(flags, dtype=np.bool_).reshape(-1, 2)


def _duplicate_problem(entry: _Pending, first_split: str | None) -> Problem:
    kind: ProblemKind = "duplicate-image" if first_split == entry.split else "leak"
    where = f"in {entry.split}, and was in {first_split}" if kind == "leak" else "again"
    message = f"image {entry.key} is listed {where}; only the first is kept"
    return Problem(kind, entry.annotation.file, message, "left out", at=entry.annotation.at, value=entry.key)


def _background_problem(entry: _Pending) -> Problem:
    file, at, ending = entry.annotation.file, entry.annotation.at, "; used as background"
    if entry.annotation.objects is None:
        return Problem("image-without-annotation", entry.key, f"has no annotation{ending}", "noted")
    return Problem("empty-annotation", file, f"has no usable object{ending}", "noted", at=at)


def _repaired_target(annotation: Annotation, header: Header) -> tuple[Target, list[Problem]]:
    boxes, problems = _rotate_to_upright(annotation, header)
    kept, kept_boxes = [], []
    for obj, box in zip(annotation.objects or (), boxes, strict=True):
        repaired, faults = repair(box, header.width, header.height)
        action: Action = "left out" if repaired is None else "repaired"
        problems += [
            Problem(kind, annotation.file, message, action, at=obj.at, value=show_box(box))
            for kind, message in faults
        ]
        if repaired is not None:
            kept.append(obj)
            kept_boxes.append(repaired)
    difficult, crowd = [obj.difficult for obj in kept], [obj.crowd for obj in kept]
    return Target.of(kept_boxes, [obj.label for obj in kept], difficult=difficult, crowd=crowd), problems


def _rotate_to_upright(annotation: Annotation, header: Header) -> tuple[list[Box], list[Problem]]:
    """Return the boxes in pixels, rotated if they were drawn on the image as stored, before EXIF rotation."""
    annotated, real = annotation.size, (header.width, header.height)
    boxes = [obj.box for obj in annotation.objects or ()]
    was_stored = annotated == real[::-1] and header.orientation >= 5
    if annotation.relative:
        width, height = annotated if annotated and was_stored else real
        boxes = [(x0 * width, y0 * height, x1 * width, y1 * height) for x0, y0, x1, y1 in boxes]
    if annotated is None or annotation.agrees_with(real):
        return boxes, []
    value = f"{annotated[0]} x {annotated[1]}"
    message = f"says the image is {value}, but upright it is {real[0]} x {real[1]}"
    kind: ProblemKind = "size-mismatch"
    action: Action = "noted"
    if was_stored:
        kind, message = "exif-rotation", f"{message}: EXIF rotates it"
        if boxes and all(is_inside(box, *annotated) for box in boxes):
            action, message = "repaired", f"{message}, so its boxes are rotated too"
            boxes = [rotate_box(box, header.orientation, *real) for box in boxes]
    return boxes, [Problem(kind, annotation.file, message, action, at=annotation.at, value=value)]


def seeded_draw(seed: int, key: str) -> bytes:
    """Return 16 random bytes that depend on the seed and the key only."""
    return hashlib.blake2b(f"{seed}:{key}".encode(errors="surrogateescape"), digest_size=16).digest()


def split_by_seed(records: Sequence[Record], *, seed: int) -> tuple[list[Record], list[Record]]:
    """Return (train, val), each in the original order, at least one record in both if there are two or more.
    The split depends only on the keys and the seed, and adding an image hardly moves the others.
    """
    keys = sorted((record.key for record in records), key=lambda key: seeded_draw(seed, key))
    chosen = set(keys[: max(1, round(len(records) * VAL_SHARE))])
    train = [record for record in records if record.key not in chosen]
    return train, [record for record in records if record.key in chosen]
