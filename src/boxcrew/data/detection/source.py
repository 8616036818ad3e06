"""Data sets: what every format is read into, and how a path becomes one."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.registry import Registry
from boxcrew.core.types import Image, Ints, Target
from boxcrew.data.checks.problem import Problem
from boxcrew.data.formats import Format, format_of
from boxcrew.data.images.reading import read_image

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """One annotated image of a data set, before it is read."""

    key: str  # unique in the set; for files: the path relative to the set's root, with forward slashes
    path: Path | None  # the image file; None where the image is drawn, not read
    width: int  # of the upright image
    height: int
    target: Target


class ImageReader(Protocol):
    """What gives the pixels of a record: a source, or a cache before one."""

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        """As `Source.read`."""


class Source(Format):
    """A data set opened: classes, the records of each split, and what was found wrong on the way.

    Opening reads annotations, and of images the headers at most. An annotation or image that cannot be
    used becomes a `Problem`; only a set of which nothing is left raises `DataError`.
    """

    format: ClassVar[str]  # the name it is registered under

    def __init__(
        self,
        *,
        root: Path,
        classes: tuple[str, ...],
        splits: Mapping[str, tuple[Record, ...]],
        problems: tuple[Problem, ...] = (),
    ) -> None:
        self.root = root
        self.classes = classes
        self.splits = splits  # the keys are among SPLITS
        self.problems = problems

    @classmethod
    @abstractmethod
    def open(cls, path: Path, *, seed: int = 0) -> Self:
        """Reads the annotations. `seed` is used only to make a split where the set has none."""

    def read(self, record: Record, *, reduction: int = 1) -> Image:
        """The upright RGB image of a record; `DataError` names the file if that fails. With a `reduction` of
        2, 4 or 8 each side may be smaller by that factor, rounded up, where that is quicker to read.
        """
        assert record.path is not None
        return read_image(record.path, reduction=reduction)

    def split(self, name: str) -> tuple[Record, ...]:
        if name not in self.splits:
            have = ", ".join(self.splits)
            raise DataError(f"{self.root}: has no split {name!r}", advice=f"it has: {have}")
        return self.splits[name]

    def without(self, keys: Collection[str], problems: tuple[Problem, ...] = ()) -> Self:
        """The same set without the records of these keys, and with the problems that speak against them."""
        left = copy.copy(self)
        splits = {
            name: tuple(record for record in records if record.key not in keys)
            for name, records in self.splits.items()
        }
        left.splits = {name: records for name, records in splits.items() if records}
        left.problems = (*self.problems, *problems)
        if "train" not in left.splits:
            first = f"the first problem: {left.problems[0]}" if left.problems else ""
            raise DataError(f"{self.root}: has no usable training image", advice=first)
        return left

    def with_classes(self, classes: tuple[str, ...]) -> Self:
        """The same set with labels in another numbering. An object of a class not in `classes` is left out,
        and noted; a set that shares no class is an error.
        """
        shared = [name for name in self.classes if name in classes]
        if not shared:
            raise DataError(
                f"{self.root}: has none of the classes {', '.join(classes)}",
                advice=f"it has: {', '.join(self.classes)}",
            )
        numbers = np.array([classes.index(c) if c in classes else -1 for c in self.classes], dtype=np.int64)
        renumbered = copy.copy(self)
        renumbered.classes = classes
        renumbered.splits = {
            name: tuple(_renumber(record, numbers) for record in records)
            for name, records in self.splits.items()
        }
        unknown = [name for name in self.classes if name not in classes]
        if unknown:
            what = f"classes the detector does not know: {', '.join(unknown)}"
            problem = Problem(kind="unknown-class", file=str(self.root), what=what, action="left out")
            renumbered.problems = (*self.problems, problem)
        return renumbered


def _renumber(record: Record, numbers: Ints) -> Record:
    labels = numbers[record.target.labels]
    known = replace(record.target, labels=labels).select(labels >= 0)
    return replace(record, target=known)


SOURCES: Registry[type[Source]] = Registry("data format", "boxcrew.data.detection.formats")
"""Members say `@SOURCES.register("voc")` in `data/detection/formats/voc.py`, and so on."""


def open_source(path: str | Path, *, format: str = "auto", seed: int = 0) -> Source:
    """Opens the data set at `path` (or `shelf`, the embedded one), detecting its format unless told."""
    return format_of(path, SOURCES, named=format).open(Path(path), seed=seed)
