"""The few parts of an ONNX file that must be known before it is given to an engine, read without a library.

ONNX files are protocol buffers: a sequence of fields, each a number, a type and a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boxcrew.core.errors import ModelError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_SHIFT = 63

# Numbers of fields in onnx.proto.
GRAPH, METADATA = 7, 14
_EXTERNAL_DATA = 13
_KEY, _VALUE = 1, 2
_TENSORS_IN: Mapping[str, Mapping[int, str]] = {
    "model": {GRAPH: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""The messages that can hold tensors, by the kind of message and the number of the field."""

Value = int | memoryview


class NotProtobufError(ModelError):
    """The content is no protocol buffer."""


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
            raise NotProtobufError("a field ends beyond the file")
        yield number, data[at : at + length]
        at += length


def field_bytes(number: int, content: bytes) -> bytes:
    """Return a field of bytes as it stands in a file."""
    return _encoded((number << 3) | _BYTES) + _encoded(len(content)) + content


def metadata_entry(key: str, value: str) -> bytes:
    """Return an entry of the metadata of an ONNX file. Appended to a file, it is part of it."""
    pair = field_bytes(_KEY, key.encode()) + field_bytes(_VALUE, value.encode())
    return field_bytes(METADATA, pair)


def read_entry(content: Value) -> tuple[str, str]:
    """Return the key and the value of a metadata entry."""
    parts = dict(fields(_as_bytes(content)))
    texts = [bytes(_as_bytes(parts.get(number, memoryview(b"")))) for number in (_KEY, _VALUE)]
    try:
        return texts[0].decode(), texts[1].decode()
    except UnicodeDecodeError as error:
        raise NotProtobufError(f"metadata: {error}") from None


def has_external_data(message: Value, kind: str = "model") -> bool:
    """Return whether a tensor anywhere in a model is in another file."""
    inner = _TENSORS_IN[kind]
    for number, value in fields(_as_bytes(message)):
        if kind == "tensor" and number == _EXTERNAL_DATA:
            return True
        if number in inner and has_external_data(value, inner[number]):
            return True
    return False


def _as_bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise NotProtobufError("a number where a message is expected")
    return value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, _MAX_SHIFT + 1, 7):
        if at >= len(data):
            raise NotProtobufError("the file ends within a number")
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
