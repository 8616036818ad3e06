"""Parses YOLO label files: lines of `class x y width height` in fractions of the image, with a confidence at
the end if a detector wrote them, or of `class x y x y …`: a polygon, or the four corners of a rotated box.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from boxcrew.core.units import counted
from boxcrew.data.checks.box_repair import Box
from boxcrew.data.checks.problem import ProblemKind
from boxcrew.data.detection.annotations import Collector, Object, ObjectTable
from boxcrew.data.images.reading import read_start

_LABEL_BYTES = 65_536  # most label files are shorter
_COLUMNS = 5  # without the confidence
_WORD, _SPACE, _NEWLINE, _OTHER = range(4)
_KIND_OF = dict.fromkeys(b"0123456789.+-eE", _WORD) | dict.fromkeys(b" \t", _SPACE) | {ord("\n"): _NEWLINE}
_KINDS = bytes(_KIND_OF.get(code, _OTHER) for code in range(256))


def read_text(file: str) -> bytes | OSError | None:
    """Return the content of a file, the error of reading it, or None if it does not exist."""
    try:
        data = read_start(file, _LABEL_BYTES)
        return Path(file).read_bytes() if len(data) == _LABEL_BYTES else data
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


class LineParser:
    """Parses label files line by line, and counts the boxes that were polygons or had a confidence."""

    def __init__(self, num_classes: int, collector: Collector) -> None:
        self.num_classes, self.collector = num_classes, collector
        self.num_polygons, self.num_confidences = 0, 0

    def parse(self, text: bytes | OSError | None, file: str) -> list[Object] | None:
        """Return the objects of a label file, leaving out faulty lines; None if there is no file."""
        if text is None:
            return None
        try:
            if isinstance(text, OSError):
                raise text
            lines = text.decode("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self.collector.leave_out("unreadable-annotation", file, f"cannot be read as text: {error}")
            return []
        objects = []
        for number, line in enumerate(lines, 1):
            try:
                if words := line.split():
                    label, box = self._parse_words(words)
                    objects.append(Object(f"line {number}", box, label))
            except _LineError as error:
                self.collector.leave_out(error.kind, file, str(error), at=f"line {number}", value=line[:80])
        return objects

    def _parse_words(self, words: list[str]) -> tuple[int, Box]:
        """Return the label, and the box in fractions of the image."""
        try:
            label, *numbers = map(float, words)
        except ValueError:
            raise _LineError("box-malformed", f"is not a line of numbers: {' '.join(words)[:80]}") from None
        if not label.is_integer() or not 0 <= label < self.num_classes:
            raise _LineError("unknown-class", f"there is no class {label:g}")
        if len(numbers) == 4 or (len(numbers) == 5 and 0 <= numbers[4] <= 1):
            self.num_confidences += len(numbers) == 5
            x, y, width, height = numbers[:4]
            return int(label), (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        if len(numbers) >= 6 and len(numbers) % 2 == 0:
            self.num_polygons += 1
            xs, ys = np.array(numbers[::2]), np.array(numbers[1::2])  # NaN spoils their minimum, as it should
            return int(label), (float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max()))
        message = f"has {len(numbers)} numbers after the class, not 4, 4 and a confidence, or x, y pairs"
        raise _LineError("box-malformed", message)

    def report(self) -> None:
        """Note what the lines were taken for, once for the whole set."""
        root = str(self.collector.root)
        if num := self.num_polygons:
            message = f"the boxes of {counted(num, 'object')} are derived from polygons or rotated boxes"
            self.collector.note("box-derived", root, message, count=num)
        if num := self.num_confidences:
            message = "the sixth column of labels is read as a confidence and not used"
            self.collector.note("label-confidence", root, message, count=num)


class _LineError(Exception):
    """A line of labels cannot be used; the message says why."""

    def __init__(self, kind: ProblemKind, message: str) -> None:
        super().__init__(message)
        self.kind: ProblemKind = kind


class LabelTables(NamedTuple):
    """The tables of label files, None for each file that is not a plain one."""

    tables: list[ObjectTable | None]
    num_confidences: int  # objects with a sixth column


def read_tables(texts: Sequence[bytes], num_classes: int) -> LabelTables:
    """Read label files that are plain tables, boxes in fractions of the image: nearly all are, and parsing
    them line by line would take most of the time of opening a set. A plain table has the same five or six
    columns in every line, and classes below `num_classes`.
    """
    texts = [text.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n" for text in texts]
    num_columns = _count_columns(texts)
    numbers = [_numbers(text, num) if num else [] for text, num in zip(texts, num_columns, strict=True)]
    rows = np.array(list(itertools.chain.from_iterable(numbers)), dtype=np.float64).reshape(-1, _COLUMNS)
    classes, centers, halves = rows[:, 0], rows[:, 1:3], rows[:, 3:] / 2
    known = (classes >= 0) & (classes < num_classes) & (classes == np.floor(classes))
    num_unknown = np.cumsum(np.append(0, ~known)).tolist()
    labels = np.where(known, classes, 0).astype(np.int64)
    with np.errstate(invalid="ignore"):  # an infinite side is reported when the box is repaired
        boxes = np.concatenate([centers - halves, centers + halves], axis=1)
    ends = itertools.accumulate((len(values) // _COLUMNS for values in numbers), initial=0)
    tables = [
        ObjectTable(labels[start:end], boxes[start:end])
        if start < end and num_unknown[start] == num_unknown[end]
        else None
        for start, end in itertools.pairwise(ends)
    ]
    pairs = zip(tables, num_columns, strict=True)
    return LabelTables(tables, sum(len(table) for table, num in pairs if table and num > _COLUMNS))


def _count_columns(texts: Sequence[bytes]) -> list[int]:
    """Return five or six for each text whose lines all have so many words with one space between, else 0.
    Each text must end with a newline.
    """
    kinds = np.frombuffer(b"".join(texts).translate(_KINDS), dtype=np.uint8)
    at = np.flatnonzero(kinds)  # positions where words end
    ends = np.cumsum([len(text) for text in texts])
    last = np.searchsorted(at, ends)  # for each text, the first word end after it
    first = np.append(0, last)[:-1]
    newlines = np.flatnonzero(kinds[at] == _NEWLINE)
    columns = newlines[np.searchsorted(newlines, first)] - first + 1  # of the first line
    per_word = np.repeat(columns, last - first)
    column = (np.arange(len(at)) - np.repeat(first, last - first)) % per_word
    wanted = np.where(column == per_word - 1, _NEWLINE, _SPACE)
    empty = np.diff(at, prepend=-1) == 1
    num_wrong = np.cumsum(np.append(0, (kinds[at] != wanted) | empty))
    good = (num_wrong[last] == num_wrong[first]) & ((last - first) % columns == 0)
    good &= (columns == _COLUMNS) | (columns == _COLUMNS + 1)
    num_columns: list[int] = np.where(good, columns, 0).tolist()
    return num_columns


def _numbers(text: bytes, num_columns: int) -> list[float]:
    """Return the numbers of a table without its confidences; none if it has to be parsed line by line."""
    try:
        values = list(map(float, text.split()))
    except ValueError:
        return []
    if num_columns > _COLUMNS:
        confidences = values[_COLUMNS::num_columns]
        if min(confidences) < 0 or max(confidences) > 1:
            return []
        del values[_COLUMNS::num_columns]
    return values
