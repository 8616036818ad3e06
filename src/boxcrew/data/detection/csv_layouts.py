"""Layouts of CSV files with one box in each row, found by the header or, without one, by the shape of rows.

- With a header, in any order: `filename,width,height,class,xmin,ymin,xmax,ymax` (TensorFlow, Roboflow),
  `image,xmin,ymin,xmax,ymax,label` (VoTT), `label_name,bbox_x,bbox_y,bbox_width,bbox_height,image_name,…`
  (makesense.ai) and the like.
- Without one: `image,x1,y1,x2,y2,class` (RetinaNet), makesense.ai's columns, and
  `TRAIN,gs://bucket/image,class,x,y,,,x,y,,` in fractions of the image (Google AutoML and Vertex AI).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from boxcrew.data.checks.box_repair import Box
from boxcrew.data.folders import suffix_of
from boxcrew.data.images.reading import IMAGE_SUFFIXES

SAMPLE_BYTES = 65536
"""The bytes of a file from which its layout is found."""

SETS = {"TRAIN": "train", "TRAINING": "train", "VALIDATION": "val", "TEST": "test", "UNASSIGNED": None}
"""The splits that AutoML names in its first column."""

_SAMPLE_ROWS = 20
_EDGES, _SIZES = ("x0", "y0", "x1", "y1"), ("x", "y", "w", "h")
_HEADERS = {
    "image": ("filename", "image", "imagename", "imagepath", "filepath", "file", "path", "img"),
    "label": ("class", "label", "labelname", "classname", "category", "name"),
    "x0": ("xmin", "x1", "left"), "y0": ("ymin", "y1", "top"),
    "x1": ("xmax", "x2", "right"), "y1": ("ymax", "y2", "bottom"),
    "x": ("bboxx",), "y": ("bboxy",), "w": ("bboxwidth",), "h": ("bboxheight",),
    "width": ("width", "imagewidth"), "height": ("height", "imageheight"),
}  # fmt: skip
"""The names of columns, in lower case and without anything but letters and digits, by what they hold."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of a table, counted from zero."""

    image: int
    label: int
    across: tuple[int, ...]  # horizontal coordinates: of two opposite vertices, or of all four
    down: tuple[int, ...]
    sizes: bool = False  # the second of `across` is a width, that of `down` a height
    relative: bool = False  # coordinates are fractions of the image
    image_size: tuple[int, int] | None = None  # the columns of its width and height
    split: int | None = None
    num_columns: int
    has_header: bool = False
    delimiter: str = ","

    def misfit(self, row: Sequence[str]) -> str:
        """Return why a row does not have this layout; an empty string if it does."""
        if not row:
            return "has a quote that is not closed"
        least = 1 + max(self.image, self.label, *self.across[:2], *self.down[:2])
        if len(row) < least or any(row[self.num_columns :]):
            return f"has {len(row)} fields instead of {self.num_columns}"
        return "" if row[self.image] else "names no image"

    def coordinates(self, row: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the horizontal and the vertical coordinates of a row that are given."""
        across, down = (
            [row[i] for i in cols if i < len(row) and row[i]] for cols in (self.across, self.down)
        )
        return across, down

    def box(self, row: Sequence[str]) -> Box | None:
        """Return the box of a row; None if it is not four numbers."""
        xs, ys = (list(map(self._number, words)) for words in self.coordinates(row))
        if len(xs) != len(ys) or len(xs) not in {2, 4}:
            return None
        left, top, right, bottom = xs[0], ys[0], xs[len(xs) // 2], ys[len(ys) // 2]
        if left is None or top is None or right is None or bottom is None:
            return None
        return (left, top, left + right, top + bottom) if self.sizes else (left, top, right, bottom)

    def size_of_image(self, row: Sequence[str]) -> tuple[int, int] | None:
        if self.image_size is None or max(self.image_size) >= len(row):
            return None
        try:
            width, height = (int(float(row[column])) for column in self.image_size)
        except (ValueError, OverflowError):
            return None
        return width, height

    def _number(self, word: str) -> float | None:
        # Where commas do not separate fields, they are those of fractions.
        return _number(word if self.delimiter == "," else word.replace(",", "."))


_RETINANET = Layout(image=0, across=(1, 3), down=(2, 4), label=5, num_columns=6)
_MAKESENSE = Layout(
    label=0, across=(1, 3), down=(2, 4), sizes=True, image=5, image_size=(6, 7), num_columns=8
)  # fmt: skip
_AUTOML = Layout(
    image=0, label=1, across=(2, 4, 6, 8), down=(3, 5, 7, 9), relative=True, num_columns=10
)  # fmt: skip
_AUTOML_SETS = Layout(
    split=0, image=1, label=2, across=(3, 5, 7, 9), down=(4, 6, 8, 10), relative=True, num_columns=11
)  # fmt: skip


def find_layout(text: str) -> Layout | None:
    """Return the layout of a table that begins with `text`, None if it is no table of boxes."""
    head = text[:SAMPLE_BYTES].split("\n")
    first = next((line for line in head if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    rows = [row for _, row in read_rows("\n".join(head[: _SAMPLE_ROWS + 1]), delimiter)]
    if not rows:
        return None
    layout = _layout_of_header(rows[0])
    if layout is None:
        layouts = [_layout_of_row(row) for row in rows]
        layout = max(dict.fromkeys(layouts), key=layouts.count)  # that of most rows: some may be damaged
    elif rows[1:] and not any(_is_image(row[layout.image]) for row in rows[1:] if len(row) > layout.image):
        return None
    return replace(layout, delimiter=delimiter) if layout else None


def read_rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank with their line numbers; no field for a row with a stray quote. Each
    line is read alone, so that an unclosed quote does not swallow the rest of the file.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                fields = next(csv.reader([line], delimiter=delimiter, strict=True))
            except csv.Error:
                fields = []
            yield number, [field.strip() for field in fields]


def _layout_of_header(row: Sequence[str]) -> Layout | None:
    names = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in row]
    columns = {
        role: next((names.index(name) for name in known if name in names), -1)
        for role, known in _HEADERS.items()
    }
    corners = next((roles for roles in (_EDGES, _SIZES) if all(columns[role] >= 0 for role in roles)), None)
    if corners is None or min(columns["image"], columns["label"]) < 0:
        return None
    left, top, right, bottom = (columns[role] for role in corners)
    image_size = (columns["width"], columns["height"])
    return Layout(
        image=columns["image"],
        label=columns["label"],
        across=(left, right),
        down=(top, bottom),
        sizes=corners == _SIZES,
        image_size=image_size if min(image_size) >= 0 else None,
        num_columns=len(row),
        has_header=True,
    )


def _layout_of_row(row: Sequence[str]) -> Layout | None:
    """Return the layout of a row of a table without header."""
    if len(row) >= 9 and row[0].upper() in SETS and _is_image(row[1]):
        return _AUTOML_SETS
    if len(row) >= 8 and row[0].startswith("gs://"):
        return _AUTOML
    if len(row) == 6 and _is_image(row[0]) and (_are_numbers(row[1:5]) or not any(row[1:])):
        return _RETINANET
    if len(row) == 8 and _is_image(row[5]) and _are_numbers([*row[1:5], *row[6:]]):
        return _MAKESENSE
    return None


def _is_image(name: str) -> bool:
    return name.startswith("gs://") or suffix_of(name) in IMAGE_SUFFIXES


def _are_numbers(words: Sequence[str]) -> bool:
    return all(_number(word) is not None for word in words)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
