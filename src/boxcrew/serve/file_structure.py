"""Counts segments, chunks or entries of an image file, which bound the time that a reader takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

_MOST_PARTS = 2000
_PART_BYTES = 1024  # a file may have one more part for each so many bytes: PNGs are written in such pieces

_SCAN, _ONE_PASS = (
    b"\xff\xda",
    (b"\xc0", b"\xc1"),
)  # markers of a scan, and of frames that are not progressive
_FRACTIONS = (5, 10)  # types of values in a TIFF: RATIONAL, SRATIONAL


def has_countless_parts(data: bytes) -> bool:
    """Return whether a JPEG, PNG, GIF or TIFF has far more parts beside its pixels than programs write."""
    most = _MOST_PARTS + len(data) // _PART_BYTES
    return next(islice(_parts(data), most, None), None) is not None


def num_scans(data: bytes) -> int:
    """Return how many scans of a JPEG may be decoded, each of which is a pass over all pixels; 0 for other
    files. Where the first scan of a baseline JPEG has all colors, decoders end with it.
    """
    if not data.startswith(b"\xff\xd8"):
        return 0
    segments = list(_segments(data))
    frame = next((at for at in segments if data[at + 1 : at + 2] in _ONE_PASS), None)
    scan = _segment_end(data, segments[-1]) if segments else 2
    if frame is not None and data[scan : scan + 2] == _SCAN:
        has_all_colors = data[frame + 9 : frame + 10] == data[scan + 4 : scan + 5]
        return 1 if has_all_colors else data.count(_SCAN)
    return data.count(_SCAN)


def _parts(data: bytes) -> Iterator[int]:
    """Yield the position of each segment, chunk or entry of an image file."""
    if data.startswith(b"\xff\xd8"):
        return _segments(data)
    if data.startswith(b"\x89PNG"):
        return _chunks(data)
    if data.startswith((b"II*\0", b"MM\0*")):
        return _fractions(data)
    return _blocks(data) if data.startswith(b"GIF8") else iter(())


def _segments(data: bytes) -> Iterator[int]:
    """Yield the segments of a JPEG until its pixels begin (ITU T.81, B.1.1)."""
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
        yield at
        at = _segment_end(data, at)


def _segment_end(data: bytes, at: int) -> int:
    """Return where the segment of a JPEG ends that begins at a position."""
    marker = int.from_bytes(data[at + 1 : at + 2])
    if marker == 0xFF:  # fills up
        return at + 1
    if marker <= 0x01 or 0xD0 <= marker <= 0xD9:  # without a content
        return at + 2
    return at + 2 + int.from_bytes(data[at + 2 : at + 4])


def _chunks(data: bytes) -> Iterator[int]:
    """Yield the chunks of a PNG (PNG specification, 5.3)."""
    at = 8
    while at < len(data):
        yield at
        at += 12 + int.from_bytes(data[at : at + 4])


def _fractions(data: bytes) -> Iterator[int]:
    """Yield the fractions in the first directory of a TIFF (TIFF 6.0, 2): each becomes an object."""
    order: Literal["little", "big"] = "little" if data.startswith(b"II") else "big"
    at = int.from_bytes(data[4:8], order)
    for entry in range(at + 2, at + 2 + 12 * int.from_bytes(data[at : at + 2], order), 12):
        if int.from_bytes(data[entry + 2 : entry + 4], order) in _FRACTIONS:
            yield from range(int.from_bytes(data[entry + 4 : entry + 8], order))


def _blocks(data: bytes) -> Iterator[int]:
    """Yield the extensions of a GIF until its first image, and the parts of each (GIF89a, 15 and 23)."""
    flags = data[10] if len(data) > 10 else 0
    at = 13 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
    while data[at : at + 1] == b"\x21":
        yield at
        at += 2
        while at < len(data) and data[at]:
            yield at
            at += 1 + data[at]
        at += 1
