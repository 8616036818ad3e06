"""Opens a large COCO set without an object for each box, and without a look at its images.

The sizes of images are taken from the annotations; a scan compares them, and if one differs, or if anything
is not ordinary, the set is opened as all others are. What comes out is the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Bools, Ints
from boxcrew.data.checks.box_reading import fit_images
from boxcrew.data.checks.box_repair import Floats64, clip_clean
from boxcrew.data.checks.format_mismatch import PERCENT_SIDE
from boxcrew.data.checks.problem import Problem
from boxcrew.data.detection.annotations import Annotation, Collector, Object
from boxcrew.data.detection.coco_files import CocoFile
from boxcrew.data.detection.coco_stream import CocoArrays, UnusualFileError
from boxcrew.data.detection.record_builder import (
    PendingImage,
    Reading,
    background_problem,
    repaired_target,
)
from boxcrew.data.detection.records import CROWD, DIFFICULT, Bytes, Columns, ImageLocation, Ints32, Records
from boxcrew.data.folders import suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES, MAX_PIXELS, Header

_ROWS = 2**18  # objects whose boxes are computed with at the same time
_FEW, _SOME = 5, 0.05  # boxes that do not fit: with no more, there is no cause to be found
_PERCENT = 100.0
_STRANGE = re.compile(r"[\\?%:]|(^|/)\.|//|^/|/$", re.MULTILINE)
"""Anything of a name that `ImageIndex` would interpret."""


@dataclass(kw_only=True, eq=False)
class _Part:
    """The images of one COCO file, each with its objects, which come one after the other."""

    file: str
    split: str
    keys: list[str]
    places: Ints32
    image_ids: Ints
    sizes: Ints32
    counts: Ints
    ids: Ints  # of the objects
    raw: Floats64  # xyxy, as annotated
    boxes: npt.NDArray[np.float32]  # clipped
    clean: Bools
    labels: Ints32
    flags: Bytes


class QuickReader:
    """Makes the columns of a set of COCO files, whose arrays are given to it one after the other."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._listings: dict[str, frozenset[str]] = {}  # the files in folders
        self._places: dict[str, int] = {}  # numbers of folders
        self._parts: list[_Part] = []

    def add(
        self, coco: CocoFile, arrays: CocoArrays, labels: Mapping[int, int], folders: Sequence[Path]
    ) -> None:
        """Add a file, whose images are in the first of the `folders` that has them."""
        places, keys = self._locate(arrays.names, [*folders, self._collector.root])
        rows = _rows_of(arrays)
        order = None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows, kind="stable")
        raw, rows = (_sorted(arrays.boxes, order), _sorted(rows, order))
        raw[:, 2:] += raw[:, :2]
        least, most = arrays.sizes.min(), arrays.sizes.max()
        if least < 1 or most > MAX_PIXELS or arrays.sizes.prod(axis=1).max() > MAX_PIXELS:
            raise UnusualFileError("images without a size, or too large")
        sizes = arrays.sizes.astype(np.int32)
        boxes, clean = _clipped(raw, sizes, rows)
        self._parts.append(
            _Part(
                file=self._collector.relative_path(coco.file),
                split=coco.split or "train",
                keys=keys,
                places=places,
                image_ids=arrays.image_ids,
                sizes=sizes,
                counts=np.bincount(rows, minlength=len(keys)),
                ids=_sorted(arrays.ids, order),
                raw=raw,
                boxes=boxes,
                clean=clean,
                labels=_sorted(_labels_of(arrays.categories, labels), order),
                flags=_sorted(arrays.flags, order),
            )
        )

    def _locate(self, names: list[str], folders: list[Path]) -> tuple[Ints32, list[str]]:
        """Return the numbers of the places of images, and their keys."""
        joined = "\n".join(names)
        if _STRANGE.search(joined) or joined.count("\n") != len(names) - 1:
            raise UnusualFileError("names that have to be interpreted")
        chosen: dict[str, list[tuple[int, str, frozenset[str]]]] = {}
        first = next(self._choices("", folders), None)
        if first is not None and "/" not in joined and first[2].issuperset(names):
            place, prefix, _ = first
            return np.full(len(names), place, dtype=np.int32), [prefix + name for name in names]
        places, keys = np.empty(len(names), dtype=np.int32), list[str]()
        for number, name in enumerate(names):
            inner, _, base = name.rpartition("/")
            if inner not in chosen:
                chosen[inner] = [*self._choices(inner, folders)]
            for place, prefix, listing in chosen[inner]:
                if base in listing:
                    places[number] = place
                    keys.append(prefix + base)
                    break
            else:
                raise UnusualFileError(f"no image {name}")
        return places, keys

    def _choices(self, inner: str, folders: list[Path]) -> Iterator[tuple[int, str, frozenset[str]]]:
        """Yield the number, the beginning of the keys and the files of each folder that may be meant."""
        for folder in dict.fromkeys(folders):
            path = str(folder / inner)
            if listing := self._listing(path):
                prefix = self._collector.relative_path(f"{path}{os.sep}x")[:-1]
                yield self._places.setdefault(path, len(self._places)), prefix, listing

    def _listing(self, folder: str) -> frozenset[str]:
        if folder not in self._listings:
            try:
                with os.scandir(folder) as entries:
                    self._listings[folder] = frozenset(entry.name for entry in entries if entry.is_file())
            except OSError:
                self._listings[folder] = frozenset()
        return self._listings[folder]

    def finish(self, num_classes: int, *, reports_unlisted: bool) -> tuple[dict[str, Records], list[Problem]]:
        """Return the records of each split, and the problems in the order of reading."""
        keys = [key for part in self._parts for key in part.keys]
        known = frozenset(keys)
        if len(known) != len(keys):
            raise UnusualFileError("images that are listed twice")
        problems = [problem for part in self._parts for problem in self._repair(part, num_classes)]
        if reports_unlisted:
            problems += self._unlisted(known)
        columns = self._columns(keys)
        splits = np.repeat([part.split for part in self._parts], [len(part.keys) for part in self._parts])
        names = dict.fromkeys(part.split for part in self._parts)
        return {name: Records(columns, np.flatnonzero(splits == name)) for name in names}, problems

    def _repair(self, part: _Part, num_classes: int) -> Iterator[Problem]:
        """Put repaired boxes in the place of faulty ones, and yield the problems."""
        ends = np.append(0, np.cumsum(part.counts))
        faulty = np.append(0, np.cumsum(~part.clean))
        keep = np.ones(len(part.boxes), dtype=np.bool_)
        reading = Reading(num_classes=num_classes)
        for row in np.flatnonzero((faulty[ends[1:]] > faulty[ends[:-1]]) | (part.counts == 0)).tolist():
            start, end = ends[row : row + 2].tolist()
            entry = self._entry(part, row, slice(start, end))
            width, height = part.sizes[row].tolist()
            target, found = repaired_target(entry.annotation, Header(width, height), reading)
            yield from found
            if not len(target):
                yield background_problem(entry)
            middle = start + len(target)
            part.boxes[start:middle], part.labels[start:middle] = target.boxes, target.labels
            part.flags[start:middle] = target.difficult * DIFFICULT + target.crowd * CROWD
            keep[middle:end] = False
            part.counts[row] = len(target)
        if not keep.all():
            part.boxes, part.labels, part.flags = part.boxes[keep], part.labels[keep], part.flags[keep]

    def _entry(self, part: _Part, row: int, span: slice) -> PendingImage:
        rows = zip(
            part.ids[span].tolist(),
            part.raw[span].tolist(),
            part.labels[span].tolist(),
            part.flags[span].tolist(),
            strict=True,
        )
        objects = tuple(
            Object(
                f"annotation {number}", (x0, y0, x1, y1), label, bool(flags & DIFFICULT), bool(flags & CROWD)
            )
            for number, (x0, y0, x1, y1), label, flags in rows
        )
        at = f"image {part.image_ids[row]}"
        image = self._collector.root / part.keys[row]
        annotation = Annotation(file=part.file, at=at, image=image, objects=objects)
        return PendingImage(annotation, part.split, part.keys[row])

    def _unlisted(self, known: frozenset[str]) -> Iterator[Problem]:
        """Yield a problem for each image in the folders of the listed ones that no file lists."""
        used = {number for part in self._parts for number in np.unique(part.places).tolist()}
        for folder in sorted(path for path, number in self._places.items() if number in used):
            prefix = self._collector.relative_path(f"{folder}{os.sep}x")[:-1]
            for name in sorted(name for name in self._listing(folder) if prefix + name not in known):
                if suffix_of(name) in IMAGE_SUFFIXES:
                    message = "is listed in no annotation file"
                    yield Problem("image-without-annotation", prefix + name, message, "left out")

    def _columns(self, keys: list[str]) -> Columns:
        encoded = [key.encode(errors="surrogateescape") for key in keys]
        parts = self._parts
        return Columns(
            keys=np.frombuffer(b"".join(encoded), dtype=np.uint8),
            key_ends=np.append(0, np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))),
            sizes=np.concatenate([part.sizes for part in parts]),
            places=np.concatenate([part.places for part in parts]),
            spans=np.zeros((0, 2), dtype=np.int64),
            checksums=np.zeros(0, dtype=np.uint32),
            box_ends=np.append(0, np.cumsum(np.concatenate([part.counts for part in parts]))),
            boxes=np.concatenate([part.boxes for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            flags=np.concatenate([part.flags for part in parts]),
            names=tuple(ImageLocation(f"{folder}{os.sep}") for folder in self._places),
        )


def _rows_of(arrays: CocoArrays) -> Ints:
    """Return the row of each object's image."""
    order = np.argsort(arrays.image_ids, kind="stable")
    known = arrays.image_ids[order]
    if not (_are_distinct(known) and _are_distinct(arrays.ids)):
        raise UnusualFileError("ids that are used twice")
    places = np.searchsorted(known, arrays.images).clip(max=len(known) - 1)
    if (known[places] != arrays.images).any():
        raise UnusualFileError("objects without an image")
    rows: Ints = order[places]
    return rows


def _are_distinct(ids: Ints) -> bool:
    if (ids[1:] > ids[:-1]).all():
        return True
    ascending = np.sort(ids)
    return bool((ascending[1:] > ascending[:-1]).all())


def _labels_of(categories: Ints, labels: Mapping[int, int]) -> Ints32:
    known = np.array(sorted(labels), dtype=np.int64)
    places = np.searchsorted(known, categories).clip(max=len(known) - 1)
    if (known[places] != categories).any():
        raise UnusualFileError("objects of no category")
    found: Ints32 = np.array([labels[number] for number in known.tolist()], dtype=np.int32)[places]
    return found


def _sorted(values: Any, order: Ints | None) -> Any:
    return values if order is None else values[order]


def _clipped(raw: Floats64, sizes: Ints32, rows: Ints) -> tuple[npt.NDArray[np.float32], Bools]:
    """Return the boxes clipped to their images, and which are clean. If so many do not fit that there may be
    a cause to be found, the file is unusual.
    """
    boxes, clean = np.empty(raw.shape, dtype=np.float32), np.empty(len(raw), dtype=np.bool_)
    num_unfit = 0
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(raw), _ROWS):
            part = slice(start, start + _ROWS)
            own = sizes[rows[part]].astype(np.float64)
            boxes[part], clean[part] = clip_clean(raw[part], own)
            num_unfit += int((~fit_images(raw[part], own)).sum())
    may_be_percent = sizes.min() >= PERCENT_SIDE and raw[:, 2:].max(initial=0) <= _PERCENT
    if num_unfit >= max(_FEW, _SOME * len(raw)) or may_be_percent:
        raise UnusualFileError("boxes that do not fit their images")
    return boxes, clean
