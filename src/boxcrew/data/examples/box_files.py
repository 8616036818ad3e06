"""Finds files that seem to hold boxes, so that images with unknown annotations are not taken for classes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from boxcrew.core.errors import DataError
from boxcrew.data.detection.source import SOURCES
from boxcrew.data.examples.class_folders import class_folders
from boxcrew.data.folders import names_in, suffix_of
from boxcrew.data.formats import EmbeddedFormat
from boxcrew.data.images.reading import read_start

_START_BYTES = 16_384
_MAX_FILES = 4  # of each folder: annotations of one kind are alike
_MIN_COLUMNS = 4  # of a box

_JSON_KEY = re.compile(
    rb'"(bbox|bboxes|boxes|shapes|regions|points|segmentation|x_?min|(rectangle|polygon|brush)labels'
    rb'|bounding_?(box|boxes|poly)|shape_attributes)"\s*:',
    re.IGNORECASE,
)
_XML_TAG = re.compile(rb"<(bndbox|robndbox|box|polygon|xmin)[\s>]", re.IGNORECASE)
_CSV_COLUMN = re.compile(
    rb"\b(bbox_?)?(x_?min|y_?min|x_?max|y_?max|x_?[012]|y_?[012]|[xy]|left|top|right|bottom|w|h|width|height)\b",
    re.IGNORECASE,
)
_CSV_BOX = re.compile(rb"\b(bbox|bounding_?box|region_shape_attributes)\b", re.IGNORECASE)


def refuse_box_files(root: Path) -> None:
    """Raise `DataError` if a file beside or above the images of a folder seems to hold boxes."""
    folders = dict.fromkeys(
        path for folder in class_folders(root) for path in (folder.path.parent, folder.path)
    )
    for parent in dict.fromkeys((root, *folders)):
        names = [name for name in names_in(parent) if suffix_of(name) in _HOLDS_BOXES]
        for name in names[:_MAX_FILES]:
            if _seems_to_hold_boxes(parent / name):
                file = (parent / name).relative_to(root).as_posix()
                message = f"{root}: {file} seems to hold boxes, but in no format that is known here"
                formats = ", ".join(
                    name for name in SOURCES.names() if not issubclass(SOURCES.get(name), EmbeddedFormat)
                )
                advice = f"boxes are read from {formats}; the format folder uses the images without boxes"
                raise DataError(message, advice=advice)


def _seems_to_hold_boxes(file: Path) -> bool:
    try:
        return _HOLDS_BOXES[suffix_of(file.name)](read_start(file, _START_BYTES))
    except OSError:
        return False


def _csv_holds_boxes(start: bytes) -> bool:
    header = start.lstrip().partition(b"\n")[0]
    columns = {match.group().lower() for match in _CSV_COLUMN.finditer(header)}
    return len(columns) >= _MIN_COLUMNS or _CSV_BOX.search(header) is not None


def _text_holds_boxes(start: bytes) -> bool:
    """Return whether the first line is the id of a class and the numbers of a box or polygon."""
    label, *numbers = (start.lstrip().partition(b"\n")[0]).split() or [b""]
    try:
        return label.isdigit() and len(list(map(float, numbers))) >= _MIN_COLUMNS
    except ValueError:
        return False


_HOLDS_BOXES: dict[str, Callable[[bytes], bool]] = {
    ".csv": _csv_holds_boxes,
    ".json": lambda start: _JSON_KEY.search(start) is not None,
    ".txt": _text_holds_boxes,
    ".xml": lambda start: _XML_TAG.search(start) is not None,
}
