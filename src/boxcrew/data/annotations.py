"""What the readers of annotation files share: boxes repaired, images measured, splits made."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.core.types import Target
from boxcrew.data.image import read_size
from boxcrew.data.layout import split_of_path
from boxcrew.data.source import SPLITS, Problem, Record

Box = tuple[float, float, float, float]
"""xyxy in pixels."""

VAL_SHARE = 0.2
"""Of the images, where a validation split has to be made."""

_SILENT_OVERHANG = 1.0  # pixels; tools disagree on whether the last pixel is width or width - 1


@dataclass(frozen=True, kw_only=True)
class Object:
    """One object as its file has it: nothing checked but that the box is four numbers."""

    where: str
    box: Box
    label: int  # in range
    difficult: bool = False
    crowd: bool = False


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """What a format says about one image, before the image is looked at."""

    where: str  # the file that says it
    image: Path
    objects: tuple[Object, ...]
    relative: bool = False  # whether boxes are in fractions of the upright image, not in pixels
    size: tuple[int, int] | None = None  # (width, height) as annotated; None or zeros where not said


def repair(box: Box, width: int, height: int) -> tuple[Box | None, str]:
    """The part of `box` inside the image with its corners in order, or None if nothing is left; and what
    was wrong with it, or "" (also for an overhang of a pixel, on which tools do not agree).
    """
    if not all(math.isfinite(value) for value in box):
        return None, f"box {_show(box)} has a side that is not a number"
    x0, x1 = sorted((box[0], box[2]))
    y0, y1 = sorted((box[1], box[3]))
    left, top, right, bottom = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
    empty = x0 == x1 or y0 == y1
    if not empty and (left >= right or top >= bottom):
        return None, f"box {_show(box)} lies outside the image of {width} x {height}"
    if empty or not _has_area((left, top, right, bottom)):
        return None, f"box {_show(box)} is empty"
    faults = []
    if (x0, y0) != (box[0], box[1]):
        faults.append("has its corners swapped")
    if max(-x0, -y0, x1 - width, y1 - height) > _SILENT_OVERHANG:
        faults.append(f"reaches out of the image of {width} x {height}")
    return (left, top, right, bottom), f"box {_show(box)} {' and '.join(faults)}" if faults else ""


def _has_area(box: Box) -> bool:
    """In float32, which boxes are kept in."""
    low, high = np.array(box, dtype=np.float32).reshape(2, 2)
    return bool((low < high).all())


def _scaled(box: Box, across: float, down: float) -> Box:
    return box[0] * across, box[1] * down, box[2] * across, box[3] * down


def _show(box: Box) -> str:
    return f"[{', '.join(f'{value:g}' for value in box)}]"


class Gathering:
    """The records of a set while its annotations are read, and the problems met on the way."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._records: dict[str, tuple[str | None, Record]] = {}  # by key
        self._problems: list[Problem] = []

    def leave_out(self, where: str, what: str) -> None:
        self._problems.append(Problem(where=where, what=what, action="left out"))

    def note(self, where: str, what: str) -> None:
        self._problems.append(Problem(where=where, what=what, action="noted"))

    def place(self, path: Path) -> str:
        """`path` seen from the root, with forward slashes: for keys and messages."""
        return os.path.relpath(path, self.root).replace(os.sep, "/")

    def divide(self, files: Iterable[Path]) -> list[tuple[str | None, Path]]:
        """Each file with the split its folders name: all None if no folder names one; if some do, files
        beside the splits are left out.
        """
        divided = [(split_of_path(file, self.root), file) for file in files]
        if not any(split for split, _ in divided):
            return divided
        for split, file in divided:
            if split is None:
                self.leave_out(self.place(file), "lies in none of the set's split folders")
        return [(split, file) for split, file in divided if split]

    def add(self, annotation: Annotation, split: str | None) -> bool:
        """Measures the image, repairs the boxes and keeps the record; `split` None if the set has none.
        Says whether it was kept.
        """
        key = self.place(annotation.image)
        if key in self._records:
            self.note(annotation.where, f"image {key} is listed again; the first annotation is kept")
            return False
        try:
            width, height = read_size(annotation.image)
        except DataError as error:
            reason = error.message.removeprefix(f"{annotation.image}: ")
            self.leave_out(annotation.where, reason if annotation.where == key else f"image {key}: {reason}")
            return False
        self._compare_sizes(annotation, (width, height))
        scale = (width, height) if annotation.relative else (1, 1)
        objects = [replace(thing, box=_scaled(thing.box, *scale)) for thing in annotation.objects]
        target = self._target(objects, width, height)
        record = Record(key=key, path=annotation.image, width=width, height=height, target=target)
        self._records[key] = (split, record)
        return True

    def _compare_sizes(self, annotation: Annotation, real: tuple[int, int]) -> None:
        said = annotation.size
        if said is None or min(said) <= 0 or said == real:
            return
        reason = ""
        if said == real[::-1]:
            reason = "; if EXIF turns the image, its boxes may have been drawn before the turn"
        size, seen = (f"{width} x {height}" for width, height in (real, said))
        self.note(annotation.where, f"says the image is {seen}, but upright it is {size}{reason}")

    def _target(self, objects: Iterable[Object], width: int, height: int) -> Target:
        kept = []
        for thing in objects:
            box, fault = repair(thing.box, width, height)
            if box is None:
                self.leave_out(thing.where, fault)
                continue
            if fault:
                self._problems.append(Problem(where=thing.where, what=fault, action="repaired"))
            kept.append(replace(thing, box=box))
        return Target.of(
            boxes=[thing.box for thing in kept],
            labels=[thing.label for thing in kept],
            difficult=[thing.difficult for thing in kept],
            crowd=[thing.crowd for thing in kept],
        )

    def finish(self, *, seed: int) -> tuple[dict[str, tuple[Record, ...]], tuple[Problem, ...]]:
        """The splits, a validation split made where there is none, and all problems."""
        splits: dict[str, list[Record]] = {}
        for split, record in self._records.values():
            splits.setdefault(split or "train", []).append(record)
        train = splits.get("train", [])
        if not train:
            raise DataError(f"{self.root}: has no usable training image", advice=self._advice())
        if "val" not in splits and len(train) > 1:
            splits["train"], splits["val"] = split_by_seed(train, seed=seed)
            what = (
                f"has no validation split; {len(splits['val'])} of its {len(train)} training images are taken"
            )
            self.note(str(self.root), f"{what} (seed {seed})")
        ordered = {name: tuple(splits[name]) for name in SPLITS if name in splits}
        return ordered, tuple(self._problems)

    def _advice(self) -> str:
        others = sorted({split for split, _ in self._records.values() if split})
        found = f"it has images only for {' and '.join(others)}; " if others else ""
        first = f"first of {len(self._problems)} problems: {self._problems[0]}" if self._problems else ""
        return found + (first or "name a split 'train', or give no splits at all")


def split_by_seed(records: Sequence[Record], *, seed: int) -> tuple[list[Record], list[Record]]:
    """(train, val), each in the order given. Depends only on the keys and the seed, and an image more or
    less hardly moves the others. Both have at least one record if there are two or more.
    """

    def draw(record: Record) -> bytes:
        return hashlib.blake2b(f"{seed}:{record.key}".encode(), digest_size=16).digest()

    num_val = max(1, round(len(records) * VAL_SHARE))
    chosen = {record.key for record in sorted(records, key=draw)[:num_val]}
    train = [record for record in records if record.key not in chosen]
    return train, [record for record in records if record.key in chosen]
