"""Reads large COCO files in pieces into arrays: as Python objects, ten million boxes would be gigabytes.

Only ordinary files are read like this. Whatever is not as COCO says is an `UnusualFileError`, and the set is
then read by `formats/coco.py`, which knows how to make something of it.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from boxcrew.core.types import Ints
from boxcrew.data.checks.box_repair import Floats64
from boxcrew.data.detection.records import CROWD, DIFFICULT, Bytes

_CHUNK = 8 * 2**20  # bytes of JSON whose objects are in memory at the same time
_LARGEST_OTHER = 64 * 2**20  # bytes of a value that is skipped
_TRIES = 8  # places where a piece may end
_KEY = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_NEXT = re.compile(rb"\s*,\s*(?=\{)")
_END = re.compile(rb"\}\s*(?=\]\s*[,}])")
_AFTER_VALUE = re.compile(rb"\s*([,}])")
_BLANKS = re.compile(rb"\s*")

Item = TypeVar("Item")


class UnusualFileError(Exception):
    """A file is not an ordinary COCO file."""


class _Image(msgspec.Struct, gc=False):
    id: int
    file_name: str
    width: int
    height: int


class _Annotation(msgspec.Struct, gc=False):
    id: int
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int | bool = 0
    difficult: int | bool = 0


@dataclass(kw_only=True, eq=False)
class CocoArrays:
    """The images and objects of a file."""

    names: list[str] = field(default_factory=list)
    image_ids: Ints
    sizes: Ints  # (n, 2)
    ids: Ints  # (m,) of the objects
    images: Ints  # (m,) the id of each object's image
    categories: Ints  # (m,) the id of its category
    boxes: Floats64  # (m, 4) x, y, width, height
    flags: Bytes  # (m,)
    listed: list[Any]  # the categories, as they are


def read_arrays(file: Path) -> CocoArrays:
    """Return what a file holds, or raise `UnusualFileError`."""
    images, objects, listed = _Parts(), _Parts(), list[Any]()
    names = list[str]()
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for key, scanner in _lists(content):
                if key == "images":
                    for some in scanner.pieces(list[_Image]):
                        names += map(attrgetter("file_name"), some)
                        images.add(some, id=np.int64, width=np.int64, height=np.int64)
                elif key == "annotations":
                    for some_objects in scanner.pieces(list[_Annotation]):
                        _add_objects(objects, some_objects)
                else:
                    for some_categories in scanner.pieces(list[dict[str, Any]]):
                        listed += some_categories
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise UnusualFileError(str(error)) from None
    if not names or not listed:
        raise UnusualFileError("no images or categories")
    sizes = np.stack([images.joined("width", np.int64), images.joined("height", np.int64)], axis=1)
    return CocoArrays(
        names=names,
        image_ids=images.joined("id", np.int64),
        sizes=sizes,
        ids=objects.joined("id", np.int64),
        images=objects.joined("image_id", np.int64),
        categories=objects.joined("category_id", np.int64),
        boxes=objects.joined("bbox", np.float64).reshape(-1, 4),
        flags=objects.joined("flags", np.uint8),
        listed=listed,
    )


class _Parts:
    """Columns that grow by pieces."""

    def __init__(self) -> None:
        self._parts: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, items: list[Any], **columns: type[np.generic]) -> None:
        for name, dtype in columns.items():
            values = np.fromiter(map(attrgetter(name), items), dtype, len(items))
            self._parts.setdefault(name, []).append(values)

    def append(self, name: str, values: npt.NDArray[Any]) -> None:
        self._parts.setdefault(name, []).append(values)

    def joined(self, name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a column, whose parts are given up."""
        return np.concatenate(self._parts.pop(name, [np.zeros(0, dtype=dtype)]))


def _add_objects(objects: _Parts, some: list[_Annotation]) -> None:
    objects.add(some, id=np.int64, image_id=np.int64, category_id=np.int32)
    numbers = chain.from_iterable(map(attrgetter("bbox"), some))
    objects.append("bbox", np.fromiter(numbers, np.float64, 4 * len(some)))
    crowd, difficult = (
        np.fromiter(map(attrgetter(name), some), np.int64, len(some)) for name in ("iscrowd", "difficult")
    )
    objects.append("flags", ((crowd != 0) * CROWD + (difficult != 0) * DIFFICULT).astype(np.uint8))


def _lists(content: mmap.mmap) -> Iterator[tuple[str, _Scanner]]:
    """Yield COCO's lists as they come. Each has to be read to its end before the next is asked for."""
    scanner = _Scanner(content)
    scanner.expect(b"{")
    seen = set[str]()
    while True:
        key = scanner.key()
        if key in {"images", "annotations", "categories"}:
            if key in seen:
                raise UnusualFileError(f"two lists {key}")
            seen.add(key)
            scanner.expect(b"[")
            yield key, scanner
        else:
            scanner.skip_value()
        if scanner.after_value() == b"}":
            if len(seen) < 3:
                raise UnusualFileError("a list is missing")
            return


class _Scanner:
    """A place in a JSON file that is mapped into memory, and goes on."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 0

    def expect(self, mark: bytes) -> None:
        self._skip_blanks()
        if self._content[self._at : self._at + 1] != mark:
            raise UnusualFileError(f"no {mark!r} at byte {self._at}")
        self._at += 1

    def _skip_blanks(self) -> None:
        match = _BLANKS.match(self._content, self._at)
        self._at = match.end() if match else self._at

    def key(self) -> str:
        match = _KEY.match(self._content, self._at)
        if match is None:
            raise UnusualFileError(f"no key at byte {self._at}")
        self._at = match.end()
        return match[1].decode()

    def after_value(self) -> bytes:
        """Return the comma or the bracket that follows a value."""
        match = _AFTER_VALUE.match(self._content, self._at)
        if match is None:
            raise UnusualFileError(f"no end of a value at byte {self._at}")
        self._at = match.end()
        return match[1]

    def skip_value(self) -> None:
        num_bytes = 4096
        while num_bytes <= _LARGEST_OTHER:
            text = self._content[self._at : self._at + num_bytes].decode("latin-1")  # a character a byte
            try:
                _, end = json.JSONDecoder(strict=False).raw_decode(text)
            except ValueError:
                end = len(text)
            if end < len(text):
                self._at += end
                return
            num_bytes *= 16
        raise UnusualFileError(f"a long value at byte {self._at}")

    def pieces(self, kind: type[list[Item]]) -> Iterator[list[Item]]:
        """Yield the objects of a list, some at a time, and go behind its end."""
        decoder = msgspec.json.Decoder(kind)
        self._skip_blanks()
        if self._content[self._at : self._at + 1] == b"]":
            self._at += 1
            return
        is_last = False
        while not is_last:
            piece, some, is_last = self._piece(decoder)
            yield some
            self._forget(self._at + piece)
        self.expect(b"]")

    def _piece(self, decoder: msgspec.json.Decoder[list[Item]]) -> tuple[int, list[Item], bool]:
        """Return the bytes of the next piece, its objects, and whether it is the last.

        Brackets in texts and in objects look like ends, but then what is before them is no whole JSON.
        """
        window = bytearray(self._content[self._at - 1 : self._at + _CHUNK])
        window[:1] = b"["
        for _, end in zip(range(_TRIES), _END.finditer(window), strict=False):
            if (some := _decoded(decoder, window, end.start() + 1)) is not None:
                return end.end() - 1, some, True
        end_at = len(window)
        for _ in range(_TRIES):
            end_at = window.rfind(b"}", 0, end_at)
            following = _NEXT.match(window, end_at + 1) if end_at >= 0 else None
            if following and (some := _decoded(decoder, window, end_at + 1)) is not None:
                return following.end() - 1, some, False
        raise UnusualFileError(f"no end of an object at byte {self._at}")

    def _forget(self, end: int) -> None:
        """Go on to `end`, and let the system take back the memory of what is before."""
        start = self._at // mmap.PAGESIZE * mmap.PAGESIZE
        if hasattr(mmap, "MADV_DONTNEED") and end // mmap.PAGESIZE * mmap.PAGESIZE > start:
            self._content.madvise(mmap.MADV_DONTNEED, start, end // mmap.PAGESIZE * mmap.PAGESIZE - start)
        self._at = end


def _decoded(decoder: msgspec.json.Decoder[list[Item]], piece: bytearray, end: int) -> list[Item] | None:
    """Return the objects up to `end`; None if they are not whole. The byte that is there stays as it was."""
    before = piece[end : end + 1]
    piece[end : end + 1] = b"]"
    try:
        with memoryview(piece) as view:
            return decoder.decode(view[: end + 1])
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return None
    finally:
        piece[end : end + 1] = before
