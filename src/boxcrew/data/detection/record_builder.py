"""Collected annotations become records: image headers are read, boxes are repaired, and if many of them fail
alike, the cause is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boxcrew.core.types import Bools, Ints, Target
from boxcrew.data.checks.box_reading import reorder
from boxcrew.data.checks.box_repair import Box, Floats64, clip_clean, is_inside, repair, rotate_box, show_box
from boxcrew.data.checks.format_mismatch import FormatMismatch, ReadBoxes, box_mismatch, class_mismatch
from boxcrew.data.checks.problem import Action, Problem, ProblemKind
from boxcrew.data.config import AS_THE_FORMAT_SAYS, BoxOptions, BoxOrder, Coordinates
from boxcrew.data.detection.records import Record, Records
from boxcrew.data.images.packed import ImagePath
from boxcrew.data.images.reading import Header, ImageError, read_header

if TYPE_CHECKING:
    from boxcrew.data.detection.annotations import Annotation, Object


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The meaning of the numbers in the files of a set."""

    order: BoxOrder = "xyxy"  # of the numbers of a box, by the format
    options: BoxOptions = AS_THE_FORMAT_SAYS
    num_classes: int | None = None  # None: labels are not checked
    numbers_classes: bool = False  # the files hold the numbers of classes, not their names

    def knows(self, label: int) -> bool:
        return self.num_classes is None or 0 <= label < self.num_classes


AS_THEY_ARE = Reading()


class PendingImage(NamedTuple):
    """An annotation that waits to become a record, together with all others."""

    annotation: Annotation
    split: str | None
    key: str


@dataclass(frozen=True, kw_only=True)
class MadeRecords:
    """The records of a set with their splits, all problems in the order of reading, and their mismatches."""

    records: list[tuple[str | None, Record]]
    problems: list[Problem]
    mismatches: list[FormatMismatch]

    def by_split(self) -> dict[str, Records]:
        """Return the records of each split; those without one are of train."""
        columns = Records.of(record for _, record in self.records).columns
        splits = np.array([split or "train" for split, _ in self.records])
        names = dict.fromkeys(splits.tolist())
        return {name: Records(columns, np.flatnonzero(splits == name)) for name in names}


def make_records(entries: Sequence[Problem | PendingImage], reading: Reading) -> MadeRecords:
    pending = [entry for entry in entries if isinstance(entry, PendingImage)]
    headers = [_try_header(entry.annotation.image) for entry in pending]
    if reading.options.changed_keys():
        pairs = zip(pending, headers, strict=True)
        pending = [
            entry._replace(annotation=_as_meant(entry.annotation, header, reading)) for entry, header in pairs
        ]
    table = _BoxTable.of([entry.annotation for entry in pending], headers)
    inputs = zip(pending, headers, _clean_targets(table, reading), strict=True)
    records: dict[str, tuple[str | None, Record]] = {}
    problems: list[Problem] = []
    for item in entries:
        if isinstance(item, Problem):
            problems.append(item)
            continue
        entry, header, target = next(inputs)
        key, image = entry.key, entry.annotation.image
        if key in records:
            problems.append(_duplicate_problem(entry, records[key][0]))
        elif isinstance(header, ImageError):
            problems.append(Problem(header.kind, key, header.message.removeprefix(f"{image}: "), "left out"))
        else:
            if target is None:
                target, faults = repaired_target(entry.annotation, header, reading)
                problems += faults
            if not len(target):
                problems.append(background_problem(entry))
            record = Record(key=key, path=image, width=header.width, height=header.height, target=target)
            records[key] = (entry.split, record)
    unlisted = [] if reading.numbers_classes else _unlisted_classes(entries)
    mismatches = list(
        filter(None, [_box_mismatch(table, reading), _class_mismatch(table, reading, unlisted)])
    )
    return MadeRecords(records=list(records.values()), problems=problems, mismatches=mismatches)


def _try_header(image: ImagePath) -> Header | ImageError:
    try:
        return read_header(image)
    except ImageError as error:
        return error


def _size(header: Header | ImageError) -> tuple[int, int]:
    return (0, 0) if isinstance(header, ImageError) else (header.width, header.height)


@dataclass(frozen=True, kw_only=True, eq=False)
class _BoxTable:
    """The N boxes of all images of a set, as arrays."""

    annotations: Sequence[Annotation]
    headers: Sequence[Header | ImageError]
    boxes: Floats64  # (N, 4) in fractions of the image or in pixels
    labels: Ints  # (N,)
    flags: Bools  # (N, 2) difficult, crowd
    relative: Bools  # (N,) whether the box is in fractions
    sizes: Floats64  # (N, 2) of the upright image; zeros if it cannot be read
    counts: Ints  # boxes of each image

    @classmethod
    def of(cls, annotations: Sequence[Annotation], headers: Sequence[Header | ImageError]) -> _BoxTable:
        nothing = np.empty((0, 4)), np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.bool_)
        arrays = [annotation.arrays() for annotation in annotations]
        boxes, labels, flags = (np.concatenate(parts) for parts in zip(nothing, *arrays, strict=True))
        counts = np.array([len(rows) for _, rows, _ in arrays], dtype=np.int64)
        relative = np.array([annotation.relative for annotation in annotations], dtype=np.bool_)
        sizes = np.array([_size(header) for header in headers], dtype=np.float64).reshape(-1, 2)
        return cls(
            annotations=annotations,
            headers=headers,
            boxes=boxes,
            labels=labels,
            flags=flags,
            relative=np.repeat(relative, counts),
            sizes=np.repeat(sizes, counts, axis=0),
            counts=counts,
        )


def _clean_targets(table: _BoxTable, reading: Reading) -> Iterator[Target | None]:
    """Yield the target of each image, or None where something has to be repaired. All boxes of the set are
    checked together: one by one they would take most of the time of opening it.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # boxes that are not finite are not clean
        scale = np.where(table.relative[:, None], np.tile(table.sizes, 2), 1.0)
        clipped, clean = clip_clean(table.boxes * scale, table.sizes)
        if reading.num_classes is not None:
            clean &= (table.labels >= 0) & (table.labels < reading.num_classes)
        num_faulty = np.cumsum(np.append(0, ~clean)).tolist()
        flags = table.flags
        all_targets = Target.of(clipped, table.labels, difficult=flags[:, 0], crowd=flags[:, 1])
    spans = itertools.pairwise(np.cumsum(np.append(0, table.counts)).tolist())
    for annotation, header, (start, end) in zip(table.annotations, table.headers, spans, strict=True):
        is_clean = num_faulty[start] == num_faulty[end] and annotation.agrees_with(_size(header))
        yield all_targets.select(slice(start, end)) if is_clean else None


def _box_mismatch(table: _BoxTable, reading: Reading) -> FormatMismatch | None:
    """Return the cause of many problems with boxes, if there is one."""
    options, is_relative = reading.options, bool(table.relative.any())
    if is_relative and not table.relative.all():
        return None
    unit: Coordinates = "fractions" if is_relative else "pixels"
    pairs = zip(table.annotations, table.headers, strict=True)
    rows = np.repeat(np.array([_is_judged(*pair) for pair in pairs], dtype=np.bool_), table.counts)
    sizes = [annotation.size or (0, 0) for annotation in table.annotations]
    read = ReadBoxes(
        boxes=table.boxes[rows],
        sizes=table.sizes[rows],
        annotated=np.repeat(np.array(sizes, dtype=np.float64).reshape(-1, 2), table.counts, axis=0)[rows],
        images=np.repeat(np.arange(len(table.counts)), table.counts)[rows],
        unit=unit if options.coordinates == "auto" else options.coordinates,
        order=reading.order if options.boxes == "auto" else options.boxes,
    )
    return box_mismatch(read)


def _is_judged(annotation: Annotation, header: Header | ImageError) -> bool:
    """Return whether boxes that do not fit the image are wrong: if EXIF rotates it, they may fit before."""
    if isinstance(header, ImageError):
        return False
    return header.orientation < 5 or annotation.size == (header.width, header.height)


def _class_mismatch(table: _BoxTable, reading: Reading, unlisted: Sequence[str]) -> FormatMismatch | None:
    """Return the cause of many problems with classes, if there is one."""
    if reading.num_classes is None:
        return None
    first = reading.options.first_class
    return class_mismatch(table.labels + first, reading.num_classes, first=first, unlisted=unlisted)


def _unlisted_classes(entries: Sequence[Problem | PendingImage]) -> list[str]:
    """Return the classes, for each object, that the reader did not find in the list of classes."""
    problems = (entry for entry in entries if isinstance(entry, Problem))
    return [problem.value for problem in problems if problem.kind == "unknown-class" and problem.value]


def _as_meant(annotation: Annotation, header: Header | ImageError, reading: Reading) -> Annotation:
    """Return the annotation as the options say that it is meant."""
    options = reading.options
    boxes, labels, _ = annotation.arrays()
    if options.coordinates != "auto":
        annotation = replace(annotation, relative=options.coordinates != "pixels")
    boxes = reorder(boxes, reading.order, options)
    if options.rescale and not isinstance(header, ImageError):
        boxes, size = _rescaled(boxes, annotation, header)
        annotation = replace(annotation, size=size)
    return annotation.with_arrays(boxes, labels - options.first_class)


def _rescaled(
    boxes: Floats64, annotation: Annotation, header: Header
) -> tuple[Floats64, tuple[int, int] | None]:
    """Return the boxes (N, 4) scaled from the annotated size to that of the image, and this size. If the
    annotation has the shape before EXIF rotation, so has the size.
    """
    annotated, size = annotation.size, (header.width, header.height)
    if annotated is None or annotation.relative or annotation.agrees_with(size):
        return boxes, annotated
    is_wide, was_wide = header.width > header.height, annotated[0] > annotated[1]
    if header.orientation >= 5 and is_wide != was_wide:
        size = size[::-1]
    return boxes * np.tile(np.divide(size, annotated), 2), size


def _duplicate_problem(entry: PendingImage, first_split: str | None) -> Problem:
    kind: ProblemKind = "duplicate-image" if first_split == entry.split else "leak"
    where = f"in {entry.split}, and was in {first_split}" if kind == "leak" else "again"
    message = f"image {entry.key} is listed {where}; only the first is kept"
    return Problem(kind, entry.annotation.file, message, "left out", at=entry.annotation.at, value=entry.key)


def background_problem(entry: PendingImage) -> Problem:
    """Return the problem of an image without objects."""
    file, at, ending = entry.annotation.file, entry.annotation.at, "; used as background"
    if entry.annotation.objects is None:
        return Problem("image-without-annotation", entry.key, f"has no annotation{ending}", "noted")
    return Problem("empty-annotation", file, f"has no usable object{ending}", "noted", at=at)


def repaired_target(annotation: Annotation, header: Header, reading: Reading) -> tuple[Target, list[Problem]]:
    """Return the objects of an image, with repaired boxes, and what was wrong with them."""
    boxes, problems = _rotate_to_upright(annotation, header)
    kept, kept_boxes = [], []
    for obj, box in zip(annotation.objects or (), boxes, strict=True):
        repaired, faults = repair(box, header.width, header.height)
        if not reading.knows(obj.label):
            problems.append(_unknown_class(annotation, obj, reading))
            continue
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


def _unknown_class(annotation: Annotation, obj: Object, reading: Reading) -> Problem:
    first, num = reading.options.first_class, reading.num_classes or 0
    message = f"there is no class {obj.label + first}; classes are {first} to {first + num - 1}"
    value = str(obj.label + first)
    return Problem("unknown-class", annotation.file, message, "left out", at=obj.at, value=value)


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
