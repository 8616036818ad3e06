"""What the readers of annotation files share: records gathered, images measured, splits made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.core.types import Target
from boxcrew.data.box_repair import Box, fits, repair, show_box, turn
from boxcrew.data.image import Header, ImageError, read_header
from boxcrew.data.layout import split_of_path
from boxcrew.data.problem import Action, Kind, Problem
from boxcrew.data.source import SPLITS, Record

VAL_SHARE = 0.2
"""Of the images, where a validation split has to be made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Object:
    """One object as its file has it: nothing checked but that the box is four numbers."""

    at: str  # where in the file of its annotation
    box: Box
    label: int  # in range
    difficult: bool = False
    crowd: bool = False


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """What a format says about one image, before the image is looked at."""

    file: str  # that says it
    at: str = ""  # where in the file
    image: Path
    objects: tuple[Object, ...] | None  # None where there is no annotation, and the image is background
    relative: bool = False  # whether boxes are in fractions of the upright image, not in pixels
    size: tuple[int, int] | None = None  # (width, height) as annotated; None or zeros where not said


class Gathering:
    """The records of a set while its annotations are read, and the problems met on the way."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._records: dict[str, tuple[str | None, Record]] = {}  # by key
        self._images: dict[str, Path] = {}  # by key, also those that cannot be used
        self._problems: list[Problem] = []
        self._folders: dict[str, str] = {}  # folders seen from the root: asking the system is slow

    def leave_out(self, kind: Kind, file: str, what: str, *, at: str = "", value: str = "") -> None:
        self._problems.append(Problem(kind=kind, file=file, at=at, what=what, value=value, action="left out"))

    def note(self, kind: Kind, file: str, what: str, *, at: str = "", value: str = "") -> None:
        self._problems.append(Problem(kind=kind, file=file, at=at, what=what, value=value, action="noted"))

    def note_gaps(self, file: str, identities: Sequence[int], what: str) -> None:
        """Notes the numbers that are missing among ascending class ids, if any."""
        missing = sorted(set(range(identities[0], identities[-1])) - set(identities)) if identities else []
        if missing:
            value = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            self.note("class-id-gap", file, f"{what} {value}", value=value)

    def place(self, path: Path) -> str:
        """`path` seen from the root, with forward slashes: for keys and messages."""
        folder, name = os.path.split(path)
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

    def add(self, annotation: Annotation, split: str | None) -> bool:
        """Measures the image, repairs the boxes and keeps the record; `split` None if the set has none.
        Says whether it was kept.
        """
        key = self.place(annotation.image)
        self._images.setdefault(key, annotation.image)
        if key in self._records:
            self._report_again(annotation, key, split)
            return False
        try:
            header = read_header(annotation.image)
        except ImageError as error:
            self.leave_out(error.kind, key, error.message.removeprefix(f"{annotation.image}: "))
            return False
        target = self._target(annotation, header)
        record = Record(
            key=key, path=annotation.image, width=header.width, height=header.height, target=target
        )
        self._records[key] = (split, record)
        if annotation.objects is None:
            self.note("image-without-annotation", key, "has no annotation; taken as background")
        elif not len(target):
            what = "has no object that can be used; taken as background"
            self.note("empty-annotation", annotation.file, what, at=annotation.at)
        return True

    def _report_again(self, annotation: Annotation, key: str, split: str | None) -> None:
        first, _ = self._records[key]
        kind: Kind = "duplicate-image" if first == split else "leak"
        place = f"in {split}, and was in {first}" if kind == "leak" else "again"
        what = f"image {key} is listed {place}; only the first is kept"
        self.leave_out(kind, annotation.file, what, at=annotation.at, value=key)

    def _target(self, annotation: Annotation, header: Header) -> Target:
        boxes = _in_pixels(annotation, header)
        if annotation.size is not None and min(annotation.size) > 0:
            boxes = self._in_upright_frame(annotation, boxes, header)
        kept, repaired = [], []
        for thing, box in zip(annotation.objects or (), boxes, strict=True):
            mended, faults = repair(box, header.width, header.height)
            action: Action = "left out" if mended is None else "repaired"
            shown = show_box(box) if faults else ""
            self._problems += [
                Problem(
                    kind=kind,
                    file=annotation.file,
                    at=thing.at,
                    what=what,
                    value=shown,
                    action=action,
                )
                for kind, what in faults
            ]
            if mended is not None:
                kept.append(thing)
                repaired.append(mended)
        return Target.of(
            boxes=repaired,
            labels=[thing.label for thing in kept],
            difficult=[thing.difficult for thing in kept],
            crowd=[thing.crowd for thing in kept],
        )

    def _in_upright_frame(self, annotation: Annotation, boxes: list[Box], header: Header) -> list[Box]:
        """Boxes that were drawn on the image as it is stored, before EXIF turns it, are turned with it."""
        said, real = annotation.size, (header.width, header.height)
        if said is None or said == real:
            return boxes
        text = f"says the image is {said[0]} x {said[1]}, but upright it is {real[0]} x {real[1]}"
        kind: Kind = "size-mismatch"
        action: Action = "noted"
        if said == real[::-1] and header.orientation >= 5:
            kind, text = "exif-rotation", f"{text}: EXIF turns it"
            if boxes and all(fits(box, *said) for box in boxes):
                action, text = "repaired", f"{text}, and so its boxes"
                boxes = [turn(box, header.orientation, *real) for box in boxes]
        self._problems.append(
            Problem(
                kind=kind,
                file=annotation.file,
                at=annotation.at,
                what=text,
                value=f"{said[0]} x {said[1]}",
                action=action,
            )
        )
        return boxes

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
            self.note("made-split", str(self.root), f"{what} (seed {seed})")
        ordered = {name: tuple(splits[name]) for name in SPLITS if name in splits}
        return ordered, tuple(self._problems)

    def _advice(self) -> str:
        others = sorted({split for split, _ in self._records.values() if split})
        found = f"it has images only for {' and '.join(others)}; " if others else ""
        first = f"first of {len(self._problems)} problems: {self._problems[0]}" if self._problems else ""
        return found + (first or "name a split 'train', or give no splits at all")


def _in_pixels(annotation: Annotation, header: Header) -> list[Box]:
    boxes = [thing.box for thing in annotation.objects or ()]
    if not annotation.relative:
        return boxes
    width, height = header.width, header.height
    return [(x0 * width, y0 * height, x1 * width, y1 * height) for x0, y0, x1, y1 in boxes]


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
