"""Fast reader of YOLO label files that are plain tables of `class x y width height`, all files at once.

Nearly every file is such a table, and parsing line by line would take most of the time of opening a set.
Other files are left to the line reader in `formats/yolo.py`, which can say what is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from boxcrew.core.types import Bools
from boxcrew.data.detection.annotations import ObjectTable

_COLUMNS = 5
_WORD, _SPACE, _NEWLINE, _OTHER = range(4)
_KIND_OF = dict.fromkeys(b"0123456789.+-eE", _WORD) | dict.fromkeys(b" \t", _SPACE) | {ord("\n"): _NEWLINE}
_KINDS = bytes(_KIND_OF.get(code, _OTHER) for code in range(256))


def read_tables(texts: Sequence[bytes], num_classes: int) -> list[ObjectTable | None]:
    """Return the objects of each file, boxes in fractions of the image.

    None stands for a file that is empty or not a plain table of classes below `num_classes`.
    """
    texts = [text.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n" for text in texts]
    are_tables = _are_tables(texts)
    numbers = [_numbers(text) if is_table else [] for text, is_table in zip(texts, are_tables, strict=True)]
    rows = np.array(list(itertools.chain.from_iterable(numbers)), dtype=np.float64).reshape(-1, _COLUMNS)
    classes, centers, halves = rows[:, 0], rows[:, 1:3], rows[:, 3:] / 2
    known = (classes >= 0) & (classes < num_classes) & (classes == np.floor(classes))
    num_unknown = np.cumsum(np.append(0, ~known)).tolist()
    labels = np.where(known, classes, 0).astype(np.int64)
    with np.errstate(invalid="ignore"):  # an infinite side is reported when the box is repaired
        boxes = np.concatenate([centers - halves, centers + halves], axis=1)
    ends = itertools.accumulate((len(values) // _COLUMNS for values in numbers), initial=0)
    return [
        ObjectTable(labels[start:end], boxes[start:end])
        if start < end and num_unknown[start] == num_unknown[end]
        else None
        for start, end in itertools.pairwise(ends)
    ]


def _are_tables(texts: Sequence[bytes]) -> Iterator[bool]:
    """Check that each text has lines of five words with one space between, and ends with a newline."""
    kinds = np.frombuffer(b"".join(texts).translate(_KINDS), dtype=np.uint8)
    at = np.flatnonzero(kinds)  # positions where words end
    ends = np.cumsum([len(text) for text in texts])
    last = np.searchsorted(at, ends)  # for each text, the first word end after it
    first = np.append(0, last)[:-1]
    column = (np.arange(len(at)) - np.repeat(first, last - first)) % _COLUMNS
    wanted = np.where(column == _COLUMNS - 1, _NEWLINE, _SPACE)
    empty = np.diff(at, prepend=-1) == 1
    num_wrong = np.cumsum(np.append(0, (kinds[at] != wanted) | empty))
    good: Bools = (num_wrong[last] == num_wrong[first]) & ((last - first) % _COLUMNS == 0)
    return iter(good.tolist())


def _numbers(text: bytes) -> list[float]:
    try:
        return list(map(float, text.split()))
    except ValueError:
        return []
