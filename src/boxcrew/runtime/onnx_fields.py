"""The few fields of an ONNX file that must be known before an engine gets it, read without a library."""

from __future__ import annotations

from collections.abc import Mapping

from boxcrew.core.protobuf import NotProtobufError, Value, as_bytes, field_bytes, fields

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


def metadata_entry(key: str, value: str) -> bytes:
    """Return an entry of the metadata of an ONNX file. Appended to a file, it is part of it."""
    pair = field_bytes(_KEY, key.encode()) + field_bytes(_VALUE, value.encode())
    return field_bytes(METADATA, pair)


def read_entry(content: Value) -> tuple[str, str]:
    """Return the key and the value of a metadata entry."""
    parts = dict(fields(as_bytes(content)))
    texts = [bytes(as_bytes(parts.get(number, memoryview(b"")))) for number in (_KEY, _VALUE)]
    try:
        return texts[0].decode(), texts[1].decode()
    except UnicodeDecodeError as error:
        raise NotProtobufError(f"metadata: {error}") from None


def has_external_data(message: Value, kind: str = "model") -> bool:
    """Return whether a tensor anywhere in a model is in another file."""
    inner = _TENSORS_IN[kind]
    for number, value in fields(as_bytes(message)):
        if kind == "tensor" and number == _EXTERNAL_DATA:
            return True
        if number in inner and has_external_data(value, inner[number]):
            return True
    return False
