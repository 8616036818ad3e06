"""Checks whether JPEG files are readable from their markers, without decoding.

Errors in the compressed data of a JPEG stop no decoder: it warns and continues. Only errors in the marker
segments (ITU T.81, annex B) and a missing end do. So a file with an ordinary structure is known to decode,
some fifty times faster than by decoding it, and for most files both ends are enough. Unusual files are left
to a decoder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from boxcrew.core.types import Bools

TAIL_BYTES = 1024
"""The end marker is searched in so many last bytes: some cameras append a little."""

_SOI, _EOI, _SOS, _DQT, _DHT, _DRI, _COM = 0xD8, 0xD9, 0xDA, 0xDB, 0xC4, 0xDD, 0xFE
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_RESTARTS, _APPS = range(0xD0, 0xD8), range(0xE0, 0xF0)
_APP1, _APP2 = 0xE1, 0xE2
_SAMPLINGS = frozenset({(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)})  # of luma; chroma has 1 x 1
_ORIENTATION_TAG, _SHORT = 0x0112, 3


@dataclass(frozen=True, slots=True)
class JpegHeader:
    width: int  # as stored, before any rotation
    height: int
    orientation: int  # EXIF: 1 is upright, 5 to 8 swap width and height


class _UnusualError(Exception):
    """A structure that only a decoder can check."""


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """Return the header from the first bytes of a file, which need not reach beyond the frame header; None
    if they are not those of an ordinary JPEG.
    """
    return _none_if_unusual(_Parser(data).read_header)


def verify_jpeg_ends(head: bytes, tail: bytes, num_bytes: int) -> JpegHeader | None:
    """Return the header of a file that decodes, from its first and last bytes; None if they do not tell. The
    bytes between, even a stray marker, do not stop the decoding of an image in a single scan.
    """
    parser = _Parser(head)
    header = _none_if_unusual(parser.read_to_scan)
    end = tail.rfind(b"\xff\xd9")
    is_complete = end >= 0 and parser.position <= num_bytes - len(tail) + end
    return header if is_complete and parser.frame != _PROGRESSIVE else None


def verify_jpeg(data: bytes) -> JpegHeader | None:
    """Return the header of a file that any decoder reads to its end; None if only decoding can tell."""
    return _none_if_unusual(_Parser(data).read_all)


def _none_if_unusual(read: Callable[[], JpegHeader]) -> JpegHeader | None:
    try:
        return read()
    except (_UnusualError, IndexError, struct.error):
        return None


@dataclass(slots=True)
class _Parser:
    """A parser of the segments; it stores what the following segments may refer to."""

    data: bytes
    position: int = 2
    orientation: int | None = None
    frame: int = 0  # its marker; 0 before it is read
    size: tuple[int, int] = (0, 0)
    components: dict[int, int] = field(default_factory=dict)  # identity -> its quantization table
    quantization: set[int] = field(default_factory=set)
    huffman: set[int] = field(default_factory=set)  # 0x00 to 0x03 for DC, 0x10 to 0x13 for AC

    def read_header(self) -> JpegHeader:
        _require(ok=self.data[:2] == b"\xff\xd8")
        while not self.frame:
            self._segment(self._marker())
        return self._header()

    def read_to_scan(self) -> JpegHeader:
        header, marker = self.read_header(), 0
        while marker != _SOS:
            marker = self._marker()
            self._segment(marker)
        return header

    def read_all(self) -> JpegHeader:
        self.read_header()
        scans, marked = 0, _marked(self.data)
        while (marker := self._marker()) != _EOI:
            self._segment(marker)
            if marker == _SOS:
                self.position, scans = _end_of_scan(self.data, marked, self.position), scans + 1
        _require(ok=scans > 0 and (scans == 1 or self.frame == _PROGRESSIVE))
        _require(ok=len(self.data) - self.position < TAIL_BYTES - 2)
        return self._header()

    def _header(self) -> JpegHeader:
        return JpegHeader(*self.size, self.orientation or 1)

    def _marker(self) -> int:
        if self.data[self.position] != 0xFF:
            raise _UnusualError
        self.position += 2
        return self.data[self.position - 1]

    def _segment(self, marker: int) -> None:
        start, data = self.position, self.data
        end = start + (data[start] << 8 | data[start + 1])
        if not start + 2 <= end <= len(data):
            raise _UnusualError
        self.position = end
        body = data[start + 2 : end]
        if marker == _DHT:
            self.huffman |= _huffman_tables(body)
        elif marker == _DQT:
            self.quantization |= _quantization_tables(body)
        elif marker in _APPS:
            self._application(marker, body)
        elif marker in {_BASELINE, _EXTENDED, _PROGRESSIVE}:
            self._frame(marker, body)
        elif marker == _SOS:
            self._scan(body)
        else:
            _require(ok=marker == _COM or (marker == _DRI and len(body) == 2))

    def _application(self, marker: int, body: bytes) -> None:
        _require(ok=not (marker == _APP2 and body.startswith(b"MPF\0")))  # several images in one file
        if marker == _APP1 and body.startswith(b"Exif\0\0"):
            _require(ok=self.orientation is None)
            self.orientation = _exif_orientation(body[6:])
        elif marker == _APP1:
            _require(ok=b"Orientation" not in body)  # in XMP

    def _frame(self, marker: int, body: bytes) -> None:
        precision, height, width, count = struct.unpack_from(">BHHB", body)
        _require(ok=not self.frame and precision == 8 and width * height > 0)
        _require(ok=count in {1, 3} and len(body) == 6 + 3 * count)
        components = [body[6 + 3 * i : 9 + 3 * i] for i in range(count)]
        samplings = [(component[1] >> 4, component[1] & 15) for component in components]
        _require(ok=samplings[0] in _SAMPLINGS and all(s == (1, 1) for s in samplings[1:]))
        self.components = {component[0]: component[2] for component in components}
        _require(ok=len(self.components) == count)
        self.frame, self.size = marker, (width, height)

    def _scan(self, body: bytes) -> None:
        count = body[0]
        _require(ok=1 <= count <= len(self.components) and len(body) == 4 + 2 * count)
        components = [(body[1 + 2 * i], body[2 + 2 * i]) for i in range(count)]
        first, last, approximation = body[-3:]
        named = {identity for identity, _ in components}
        _require(ok=len(named) == count and named <= self.components.keys())
        _require(ok=all(self.components[identity] in self.quantization for identity in named))
        if self.frame == _PROGRESSIVE:
            high, low = approximation >> 4, approximation & 15
            _require(ok=last == 0 if first == 0 else first <= last < 64 and count == 1)
            _require(ok=low <= 13 and high in {0, low + 1})
            needs_dc, needs_ac = first == 0 and approximation < 0x10, first > 0
        else:
            _require(ok=(first, last, approximation) == (0, 63, 0) and count == len(self.components))
            needs_dc = needs_ac = True
        for _, tables in components:
            _require(ok=not needs_dc or tables >> 4 in self.huffman)
            _require(ok=not needs_ac or 0x10 | (tables & 15) in self.huffman)


def _require(*, ok: bool) -> None:
    if not ok:
        raise _UnusualError


def _marked(data: bytes) -> Bools:
    """Return for every byte but the last whether, within compressed data, a marker begins there. NumPy is
    fast and lets other threads work meanwhile.
    """
    codes = np.frombuffer(data, dtype=np.uint8)
    marked: Bools = codes[:-1] == 0xFF
    marked &= codes[1:] != 0
    return marked


def _end_of_scan(data: bytes, marked: Bools, position: int) -> int:
    """Return where compressed data from `position` on end: at the first marker that is not a restart."""
    while True:
        _require(ok=position < len(marked))
        position += int(marked[position:].argmax())
        _require(ok=bool(marked[position]))
        if data[position + 1] not in _RESTARTS:
            return position
        position += 2


@lru_cache(maxsize=256)  # images of one camera or program have the same tables
def _quantization_tables(body: bytes) -> frozenset[int]:
    position, tables = 0, set[int]()
    while position < len(body):
        precision, table = body[position] >> 4, body[position] & 15
        _require(ok=precision < 2 and table < 4)
        tables.add(table)
        position += 1 + 64 * (precision + 1)
    _require(ok=position == len(body))
    return frozenset(tables)


@lru_cache(maxsize=256)
def _huffman_tables(body: bytes) -> frozenset[int]:
    position, tables = 0, set[int]()
    while position < len(body):
        table, counts = body[position], body[position + 1 : position + 17]
        symbols = body[position + 17 : position + 17 + sum(counts)]
        _require(ok=table & 0xEC == 0 and len(counts) == 16 and len(symbols) == sum(counts) <= 256)
        _require(ok=_is_prefix_code(counts) and (table >= 0x10 or max(symbols, default=0) < 16))
        tables.add(table)
        position += 17 + len(symbols)
    return frozenset(tables)


def _is_prefix_code(counts: bytes) -> bool:
    """Return whether 16 bits are enough for so many symbols of each length, without the code of only ones."""
    code = 0
    for length, count in enumerate(counts, 1):
        code += count
        if code >= 1 << length:
            return False
        code <<= 1
    return True


def _exif_orientation(tiff: bytes) -> int:
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    _require(ok=order is not None)
    (start,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, start)
    for i in range(count):
        tag, kind, number, value = struct.unpack_from(f"{order}HHIH", tiff, start + 2 + 12 * i)
        if tag == _ORIENTATION_TAG:
            _require(ok=kind == _SHORT and number == 1)
            return value if 1 <= value <= 8 else 1
    return 1
