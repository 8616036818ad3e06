"""Protocol buffers without a library: a sequence of fields, each a number, a type and a value."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_SHIFT = 63

Value = int | memoryview


class NotProtobufError(ValueError):
    """The content is no protocol buffer, or not of the kind that is read."""


def fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field; `NotProtobufError` where the content makes no sense."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in {_FIXED64, _FIXED32}:
            length = 8 if kind == _FIXED64 else 4
        else:
            raise NotProtobufError(f"no such type of field: {kind}")
        if number == 0 or at + length > len(data):
            raise NotProtobufError("it ends within a field")
        yield number, data[at : at + length]
        at += length


def as_bytes(value: Value | None) -> memoryview:
    """Return the value of a field that must hold bytes, such as another message."""
    if not isinstance(value, memoryview):
        raise NotProtobufError("a message is missing")
    return value


def as_integer(value: Value | None) -> int:
    """Return the value of a field that must hold an integer."""
    if not isinstance(value, int):
        raise NotProtobufError("a number is missing")
    return value


def field_bytes(number: int, content: bytes) -> bytes:
    """Return a field of bytes as it stands in a file."""
    return _encoded((number << 3) | _BYTES) + _encoded(len(content)) + content


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the integer that begins at `at`, 7 bits a byte, and the place after it."""
    result = 0
    for shift in range(0, _MAX_SHIFT + 1, 7):
        if at >= len(data):
            raise NotProtobufError("it ends within a number")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise NotProtobufError("a number is too long")


def _encoded(number: int) -> bytes:
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
