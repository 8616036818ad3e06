"""What the readers of annotation files share: records gathered, images measured, splits made."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, overload

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Ints, Target
from boxcrew.data.checks.box_repair import Box, Floats64, clip_plain, fits, repair, show_box, turn
from boxcrew.data.checks.problem import Action, Kind, Problem
from boxcrew.data.detection.source import SPLITS, Record
from boxcrew.data.folders import split_of_path
from boxcrew.data.images.reading import Header, ImageError, read_header

VAL_SHARE = 0.2
"""Of the images, where a validation split has to be made."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Python's search for cyclic garbage visits all objects again and again while annotations make very many,
    in which there are no cycles. It took a fifth of the time of opening a set.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Object(NamedTuple):
    """One object as its file has it: nothing checked but that the box is four numbers. A tuple, because a set
    may have millions.
    """

    at: str  # where in the file of its annotation
    box: Box
    label: int  # in range
    difficult: bool = False
    crowd: bool = False


class ObjectTable(Sequence[Object]):
    """The objects of a file of which all lines are plain, the first of line 1 and so on, as arrays: a set may
    have millions, of which only those with a fault are ever asked for one by one.
    """

    def __init__(self, labels: Ints, boxes: Floats64) -> None:
        self.labels = labels  # (N,)
        self.boxes = boxes  # (N, 4)

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> Object: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Object]: ...

    def __getitem__(self, index: int | slice) -> Object | Sequence[Object]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        x0, y0, x1, y1 = self.boxes[index].tolist()
        return Object(at=f"line {index + 1}", box=(x0, y0, x1, y1), label=int(self.labels[index]))


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """What a format says about one image, before the image is looked at."""

    file: str  # that says it
    at: str = ""  # where in the file
    image: Path
    objects: Sequence[Object] | None  # None where there is no annotation, and the image is background
    relative: bool = False  # whether boxes are in fractions of the upright image, not in pixels
    size: tuple[int, int] | None = None  # (width, height) as annotated; None or zeros where not said


@dataclass(frozen=True, slots=True)
class _Added:
    """An annotation of an image, which waits to be looked at together with all others."""

    annotation: Annotation
    split: str | None
    key: str


class Gathering:
    """What is found while the annotations of a set are read, in order: problems, and annotations of images.
    The images are measured and the boxes repaired when all are there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._found: list[Problem | _Added] = []
        self._images: dict[str, Path] = {}  # by key, also those that cannot be used
        self._folders: dict[str, str] = {}  # folders seen from the root: asking the system is slow

    def leave_out(self, kind: Kind, file: str, what: str, *, at: str = "", value: str = "") -> None:
        self._found.append(Problem(kind=kind, file=file, at=at, what=what, value=value, action="left out"))

    def note(self, kind: Kind, file: str, what: str, *, at: str = "", value: str = "") -> None:
        self._found.append(Problem(kind=kind, file=file, at=at, what=what, value=value, action="noted"))

    def note_gaps(self, file: str, identities: Sequence[int], what: str) -> None:
        """Notes the numbers that are missing among ascending class ids, if any."""
        missing = sorted(set(range(identities[0], identities[-1])) - set(identities)) if identities else []
        if missing:
            value = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            self.note("class-id-gap", file, f"{what} {value}", value=value)

    def place(self, path: Path | str) -> str:
        """`path` seen from the root, with forward slashes: for keys and messages."""
        folder, separator, name = str(path).rpartition(os.sep)  # thrice as fast as os.path.split
        folder = folder or separator
        if name in {"", ".", ".."}:
            return os.path.relpath(path, self.root).replace(os.sep, "/")
        if folder not in self._folders:
            seen = os.path.relpath(folder or ".", self.root).replace(os.sep, "/")
            self._folders[folder] = "" if seen == "." else f"{seen}/"
        return self._folders[folder] + name

    def divide(self, files: Iterable[Path]) -> list[tuple[str | None, Path]]:
        """Each file with the split its folders name: all None if no folder names one; if some do, files
        beside the splits are left out.
        """
        divided = [(split_of_path(file, self.root), file) for file in files]
        if not any(split for split, _ in divided):
            return divided
        for split, file in divided:
            if split is None:
                self.leave_out("no-split", self.place(file), "lies in none of the set's split folders")
        return [(split, file) for split, file in divided if split]

    def met(self, image: Path) -> bool:
        """Whether an annotation of this image was added, be it usable or not."""
        return self.place(image) in self._images

    def image_folders(self) -> list[Path]:
        """The folders of all images met, sorted."""
        return sorted({image.parent for image in self._images.values()})

    def add(self, annotation: Annotation, split: str | None) -> None:
        """`split` is None if the set has none."""
        key = self.place(annotation.image)
        self._images.setdefault(key, annotation.image)
        self._found.append(_Added(annotation, split, key))

    def finish(self, *, seed: int) -> tuple[dict[str, tuple[Record, ...]], tuple[Problem, ...]]:
        """The splits, a validation split made where there is none, and all problems."""
        records, problems = _inspect(self._found)
        splits: dict[str, list[Record]] = {}
        for split, record in records:
            splits.setdefault(split or "train", []).append(record)
        train = splits.get("train", [])
        if not train:
            others = sorted({split for split, _ in records if split})
            raise DataError(f"{self.root}: has no usable training image", advice=_advice(others, problems))
        if "val" not in splits and len(train) > 1:
            splits["train"], splits["val"] = split_by_seed(train, seed=seed)
            what = (
                f"has no validation split; {len(splits['val'])} of its {len(train)} training images are taken"
                f" (seed {seed})"
            )
            problems.append(Problem(kind="made-split", file=str(self.root), what=what, action="noted"))
        ordered = {name: tuple(splits[name]) for name in SPLITS if name in splits}
        return ordered, tuple(problems)


def _advice(other_splits: Sequence[str], problems: Sequence[Problem]) -> str:
    found = f"it has images only for {' and '.join(other_splits)}; " if other_splits else ""
    first = f"first of {len(problems)} problems: {problems[0]}" if problems else ""
    return found + (first or "name a split 'train', or give no splits at all")


def _inspect(found: Sequence[Problem | _Added]) -> tuple[list[tuple[str | None, Record]], list[Problem]]:
    """The records with their splits, and all problems, in the order of what was found."""
    added = [item for item in found if isinstance(item, _Added)]
    headers = [_measure(item.annotation.image) for item in added]
    looked_at = zip(headers, _plain_targets(added, headers), strict=True)
    records: dict[str, tuple[str | None, Record]] = {}
    problems: list[Problem] = []
    for item in found:
        if isinstance(item, Problem):
            problems.append(item)
            continue
        header, target = next(looked_at)
        if item.key in records:
            problems.append(_again(item, records[item.key][0]))
        elif isinstance(header, ImageError):
            what = header.message.removeprefix(f"{item.annotation.image}: ")
            problems.append(Problem(kind=header.kind, file=item.key, what=what, action="left out"))
        else:
            if target is None:
                target, faults = _repaired_target(item.annotation, header)
                problems += faults
            if not len(target):
                problems.append(_background(item))
            record = Record(
                key=item.key,
                path=item.annotation.image,
                width=header.width,
                height=header.height,
                target=target,
            )
            records[item.key] = (item.split, record)
    return list(records.values()), problems


def _measure(image: Path) -> Header | ImageError:
    try:
        return read_header(image)
    except ImageError as error:
        return error


def _plain_targets(
    added: Sequence[_Added], headers: Sequence[Header | ImageError]
) -> Iterator[Target | None]:
    """The target of each image of which nothing has to be repaired, None for the others. All boxes of the set
    are looked at together: one by one they would take most of the time of opening it.
    """
    per_image = [item.annotation.objects or () for item in added]
    counts = np.array([len(things) for things in per_image], dtype=np.int64)
    real = [(0, 0) if isinstance(header, ImageError) else (header.width, header.height) for header in headers]
    sizes = np.repeat(np.array(real, dtype=np.float64).reshape(-1, 2), counts, axis=0)
    relative = np.repeat(np.array([item.annotation.relative for item in added], dtype=np.bool_), counts)
    boxes, labels = _joined(per_image)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is not plain
        boxes[relative] *= np.tile(sizes[relative], 2)
        clipped, plain_boxes = clip_plain(boxes, sizes)
        num_faulty = np.cumsum(np.append(0, ~plain_boxes)).tolist()
        together = Target.of(
            boxes=clipped,
            labels=labels,
            difficult=_flags(per_image, "difficult"),
            crowd=_flags(per_image, "crowd"),
        )
    ends = np.cumsum(np.append(0, counts)).tolist()
    for item, size, (start, end) in zip(added, real, itertools.pairwise(ends), strict=True):
        said = item.annotation.size
        plain = num_faulty[start] == num_faulty[end] and (said is None or min(said) <= 0 or said == size)
        yield together.select(slice(start, end)) if plain else None


def _joined(per_image: Sequence[Sequence[Object]]) -> tuple[Floats64, Ints]:
    """The boxes and labels of all images, one after the other."""
    boxes, labels = [np.empty((0, 4))], [np.empty(0, dtype=np.int64)]
    for objects in per_image:
        if isinstance(objects, ObjectTable):
            boxes.append(objects.boxes)
            labels.append(objects.labels)
        elif objects:
            boxes.append(np.array([thing.box for thing in objects], dtype=np.float64))
            labels.append(np.array([thing.label for thing in objects], dtype=np.int64))
    return np.concatenate(boxes), np.concatenate(labels)


def _flags(per_image: Sequence[Sequence[Object]], name: Literal["difficult", "crowd"]) -> list[bool]:
    flags: list[bool] = []
    for objects in per_image:
        if isinstance(objects, ObjectTable):
            flags += [False] * len(objects)
        else:
            flags += [getattr(thing, name) for thing in objects]
    return flags


def _again(item: _Added, first: str | None) -> Problem:
    kind: Kind = "duplicate-image" if first == item.split else "leak"
    place = f"in {item.split}, and was in {first}" if kind == "leak" else "again"
    what = f"image {item.key} is listed {place}; only the first is kept"
    file, at = item.annotation.file, item.annotation.at
    return Problem(kind=kind, file=file, at=at, what=what, value=item.key, action="left out")


def _background(item: _Added) -> Problem:
    if item.annotation.objects is None:
        what = "has no annotation; taken as background"
        return Problem(kind="image-without-annotation", file=item.key, what=what, action="noted")
    what = "has no object that can be used; taken as background"
    file, at = item.annotation.file, item.annotation.at
    return Problem(kind="empty-annotation", file=file, at=at, what=what, action="noted")


def _repaired_target(annotation: Annotation, header: Header) -> tuple[Target, list[Problem]]:
    boxes, problems = _in_pixels(annotation, header), list[Problem]()
    if annotation.size is not None and min(annotation.size) > 0:
        boxes, problems = _in_upright_frame(annotation, boxes, header)
    kept, repaired = [], []
    for thing, box in zip(annotation.objects or (), boxes, strict=True):
        mended, faults = repair(box, header.width, header.height)
        action: Action = "left out" if mended is None else "repaired"
        problems += [
            Problem(
                kind=kind, file=annotation.file, at=thing.at, what=what, value=show_box(box), action=action
            )
            for kind, what in faults
        ]
        if mended is not None:
            kept.append(thing)
            repaired.append(mended)
    target = Target.of(
        boxes=repaired,
        labels=[thing.label for thing in kept],
        difficult=[thing.difficult for thing in kept],
        crowd=[thing.crowd for thing in kept],
    )
    return target, problems


def _in_pixels(annotation: Annotation, header: Header) -> list[Box]:
    boxes = [thing.box for thing in annotation.objects or ()]
    if not annotation.relative:
        return boxes
    width, height = header.width, header.height
    return [(x0 * width, y0 * height, x1 * width, y1 * height) for x0, y0, x1, y1 in boxes]


def _in_upright_frame(
    annotation: Annotation, boxes: list[Box], header: Header
) -> tuple[list[Box], list[Problem]]:
    """Boxes that were drawn on the image as it is stored, before EXIF turns it, are turned with it."""
    said, real = annotation.size, (header.width, header.height)
    if said is None or said == real:
        return boxes, []
    text = f"says the image is {said[0]} x {said[1]}, but upright it is {real[0]} x {real[1]}"
    kind: Kind = "size-mismatch"
    action: Action = "noted"
    if said == real[::-1] and header.orientation >= 5:
        kind, text = "exif-rotation", f"{text}: EXIF turns it"
        if boxes and all(fits(box, *said) for box in boxes):
            action, text = "repaired", f"{text}, and so its boxes"
            boxes = [turn(box, header.orientation, *real) for box in boxes]
    value = f"{said[0]} x {said[1]}"
    problem = Problem(
        kind=kind, file=annotation.file, at=annotation.at, what=text, value=value, action=action
    )
    return boxes, [problem]


def split_by_seed(records: Sequence[Record], *, seed: int) -> tuple[list[Record], list[Record]]:
    """(train, val), each in the order given. Depends only on the keys and the seed, and an image more or
    less hardly moves the others. Both have at least one record if there are two or more.
    """

    def draw(record: Record) -> bytes:
        return hashlib.blake2b(
            f"{seed}:{record.key}".encode(errors="surrogateescape"), digest_size=16
        ).digest()

    num_val = max(1, round(len(records) * VAL_SHARE))
    chosen = {record.key for record in sorted(records, key=draw)[:num_val]}
    train = [record for record in records if record.key not in chosen]
    return train, [record for record in records if record.key in chosen]
