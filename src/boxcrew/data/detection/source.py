"""Detection data sets: `Source` is the form that every format is read into, `open_source` opens a path."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.registry import Registry
from boxcrew.core.storage.address import Url
from boxcrew.core.types import Image
from boxcrew.data.checks.problem import Problem, first_problem
from boxcrew.data.config import AS_THE_FORMAT_SAYS, DISK_BYTES, BoxOptions
from boxcrew.data.detection.records import Record, Records
from boxcrew.data.formats import Format, format_of
from boxcrew.data.images.reading import read_image
from boxcrew.data.stored import local_or_packed

SPLITS = ("train", "val", "test")


class ImageReader(Protocol):
    """Anything that reads the pixels of a record as `Source.read` does: a source, or a cache before it."""

    def read(self, record: Record, *, reduction: int = 1) -> Image: ...


@runtime_checkable
class FetchingReader(ImageReader, Protocol):
    """A reader that can get the files of several images at the same time, before they are read."""

    def fetch(self, records: Sequence[Record]) -> None: ...


@dataclass(kw_only=True, eq=False)
class Source(Format):
    """An open data set: classes, the records of each split, and the problems found while opening. Opening
    reads annotations, and at most the headers of images. An annotation or image that cannot be used becomes a
    `Problem`; `DataError` is raised only if nothing usable is left.
    """

    format: ClassVar[str]  # the name it is registered under

    root: Path
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[Record]]  # the keys are among SPLITS
    problems: tuple[Problem, ...] = ()
    inputs: tuple[Path, ...] = ()  # files outside of the root that say what belongs to the set
    compares_sizes: bool = False  # sizes are as annotated or stored: a scan has to compare those of images
    is_checked: bool = False  # each image was found usable when it was packed: none has to be looked at
    content: str = ""  # a digest of all images and objects, where it is stored

    @classmethod
    @abstractmethod
    def open(cls, path: Path, *, seed: int = 0, options: BoxOptions = AS_THE_FORMAT_SAYS) -> Self:
        """Read the annotations, as the options say. `seed` is used only to draw a validation split where the
        set has none.
        """

    @classmethod
    def open_quickly(cls, path: Path, *, seed: int, options: BoxOptions) -> Self | None:  # noqa: ARG003
        """Return a large set as `open` would, but with the sizes of images as annotated, which a scan has to
        compare; None if the format, or this set, has no such way.
        """
        return None

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        """Return the upright RGB image of a record, or raise a `DataError` that names the file. With a
        `reduction` of 2, 4 or 8 each side may be smaller by that factor, rounded up, if that is faster.
        """
        assert record.path is not None
        return read_image(record.path, reduction=reduction)

    @property
    def place(self) -> str:
        """The path or the URL of the set, for messages."""
        return str(self.root)

    @property
    def records(self) -> Records:
        """The records of all splits."""
        return Records.joined(self.splits.values())

    def split(self, name: str) -> Records:
        if name not in self.splits:
            advice = f"it has: {', '.join(self.splits)}"
            if name == "val" and len(self.records) == 1:
                advice = "it has a single usable image: add another, or evaluate on this one: data.val=train"
            elif name in SPLITS and (reason := first_problem(self.problems)):
                advice = f"{advice}; {reason}"
            raise DataError(f"{self.place}: has no split {name!r}", advice=advice)
        return Records.of(self.splits[name])

    def without(self, keys: Collection[str], problems: tuple[Problem, ...] = ()) -> Self:
        """Return the set without the records of these keys, and with `problems` added."""
        kept = {name: Records.of(records).without(keys) for name, records in self.splits.items()}
        splits, problems = {name: kept[name] for name in kept if kept[name]}, (*self.problems, *problems)
        if "train" not in splits:
            raise DataError(f"{self.root}: has no usable training image", advice=first_problem(problems))
        return replace(self, splits=splits, problems=problems)

    def with_classes(self, classes: tuple[str, ...]) -> Self:
        """Return the set with its labels renumbered to `classes`. Objects of other classes are left out, with
        a problem; a set that shares no class is an error.
        """
        unknown = [name for name in self.classes if name not in classes]
        if len(unknown) == len(self.classes):
            message = f"{self.root}: has none of the classes {', '.join(classes)}"
            raise DataError(message, advice=f"it has: {', '.join(self.classes)}")
        numbers = np.array([classes.index(c) if c in classes else -1 for c in self.classes], dtype=np.int64)

        records = self.records
        columns = records.columns.with_labels(numbers)
        ends = itertools.accumulate(map(len, self.splits.values()), initial=0)
        spans = zip(self.splits, itertools.pairwise(ends), strict=True)
        splits = {name: Records(columns, records.rows[start:end]) for name, (start, end) in spans}
        problems = self.problems
        if unknown:
            message = f"classes the detector does not know: {', '.join(unknown)}"
            problems += (Problem("unknown-class", str(self.root), message, "left out"),)
        return replace(self, classes=classes, splits=splits, problems=problems)


SOURCES: Registry[type[Source]] = Registry("data format", "boxcrew.data.detection.formats")
"""All formats. Each registers itself: `@SOURCES.register("voc")` in `data/detection/formats/voc.py`."""


def open_source(
    path: str | Path,
    *,
    format: str = "auto",
    seed: int = 0,
    options: BoxOptions = AS_THE_FORMAT_SAYS,
    disk: int = DISK_BYTES,
) -> Source:
    """Open the data set at `path` (or `shelf`, the embedded one), by default detecting its format. Of a
    packed set under a URL, images are kept in `disk` bytes; any other under a URL is copied.
    """
    place = local_or_packed(path)
    if not isinstance(place, Url):
        return format_of(place, SOURCES, named=format).open(place, seed=seed, options=options)
    from boxcrew.data.detection.formats.packed import PackedSource

    if format not in {"auto", PackedSource.format}:
        raise UsageError(f"data.format={format}: {place} is packed", advice="leave it out")
    return PackedSource.open_url(place, budget=disk, options=options)
