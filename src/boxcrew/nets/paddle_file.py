"""The parameter files of PaddlePaddle's inference models, read without PaddlePaddle.

`NAME.pdiparams` has one record for each tensor, without names, in the order of their sorted names; the names
are in `NAME.pdmodel`, a protocol buffer (`framework.proto`: ProgramDesc) of which only the variables are
read. Nothing in either file is run.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from boxcrew.core.errors import ModelError

SUFFIX = ".pdiparams"

_DTYPES = {2: torch.int32, 3: torch.int64, 4: torch.float16, 5: torch.float32, 6: torch.float64}
"""VarType.Type of elements."""

_LOD_TENSOR = 7  # VarType.Type of variables that are tensors; others feed and fetch
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers


class _DamagedError(ValueError):
    """The bytes are not what the format says."""


@dataclass(frozen=True)
class _Description:
    """The element type and shape of a tensor (TensorDesc)."""

    dtype: torch.dtype
    shape: tuple[int, ...]


def read_paddle(path: Path) -> dict[str, Tensor]:
    """Read the tensors of `NAME.pdiparams` under the names that `NAME.pdmodel` beside it gives them."""
    program = path.with_suffix(".pdmodel")
    if not program.is_file():
        raise ModelError(
            f"{path}: {program.name} is not beside it",
            advice=f"the tensors have no names in a {SUFFIX} file; keep both files together",
        )
    try:
        wanted = _parameters(program.read_bytes())
    except _DamagedError as error:
        raise ModelError(f"{program}: not a PaddlePaddle model, or damaged: {error}") from None
    try:
        return _tensors(path.read_bytes(), wanted)
    except _DamagedError as error:
        raise ModelError(f"{path}: not the parameters of {program.name}, or damaged: {error}") from None


def _tensors(content: bytes, wanted: dict[str, _Description]) -> dict[str, Tensor]:
    """Return the tensors of all records, which must be those that are wanted, and nothing else."""
    tensors, place = {}, 0
    for name in sorted(wanted):
        tensors[name], place = _record(content, place, name, wanted[name])
    if place != len(content):
        raise _DamagedError(f"{len(content) - place} bytes after the last tensor")
    return tensors


def _record(content: bytes, place: int, name: str, wanted: _Description) -> tuple[Tensor, int]:
    """Return the tensor that begins at `place`, and the place after it. Before its numbers stand a version,
    a count of sequence levels (none in parameters), another version, and its description.
    """
    header = struct.Struct("<IQII")
    try:
        *zeros, length = header.unpack_from(content, place)
    except struct.error:
        raise _DamagedError(f"it ends before {name}") from None
    begin = place + header.size + length
    if any(zeros) or _description(content[place + header.size : begin]) != wanted:
        raise _DamagedError(f"the record of {name} has another type or shape, or begins elsewhere")
    end = begin + math.prod(wanted.shape) * wanted.dtype.itemsize
    if end > len(content):
        raise _DamagedError(f"it ends within {name}")
    numbers = torch.frombuffer(bytearray(content[begin:end]), dtype=wanted.dtype)
    return numbers.reshape(wanted.shape), end


def _parameters(content: bytes) -> dict[str, _Description]:
    """Return the tensors that the model keeps (VarDesc: persistable), by name."""
    parameters: dict[str, _Description] = {}
    for block in _messages(content, 1):
        for variable in _messages(block, 3):
            fields = dict(_fields(variable))
            kind = dict(_fields(_bytes_of(fields, 2)))
            if fields.get(3) != 1 or kind.get(1) != _LOD_TENSOR:
                continue
            tensor = dict(_fields(_bytes_of(kind, 3)))
            name = _bytes_of(fields, 1).decode(errors="replace")
            parameters[name] = _description(_bytes_of(tensor, 1))
    if not parameters:
        raise _DamagedError("it has no parameters")
    return parameters


def _description(message: bytes) -> _Description:
    fields = list(_fields(message))
    dtype = _DTYPES.get(_integer(dict(fields).get(1)))
    shape = tuple(_integer(value) for number, value in fields if number == 2)
    if dtype is None or not all(0 < side < 1 << 31 for side in shape):
        raise _DamagedError("a tensor of an unknown type or shape")
    return _Description(dtype, shape)


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the contents of the fields of that number."""
    for field, value in _fields(message):
        if field == number:
            if not isinstance(value, bytes):
                raise _DamagedError(f"field {number} is not a message")
            yield value


def _bytes_of(fields: dict[int, int | bytes], number: int) -> bytes:
    value = fields.get(number)
    if not isinstance(value, bytes):
        raise _DamagedError(f"field {number} is missing")
    return value


def _integer(value: int | bytes | None) -> int:
    if not isinstance(value, int):
        raise _DamagedError("a number is missing")
    return value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protocol buffer: integers, or bytes for everything else."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if wire == _BYTES:
            length, place = _varint(message, place)
        elif wire in {_FIXED32, _FIXED64}:
            length = 4 if wire == _FIXED32 else 8
        else:
            raise _DamagedError(f"a field of the unknown type {wire}")
        if place + length > len(message):
            raise _DamagedError("it ends within a field")
        yield number, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the integer that begins at `place`, 7 bits a byte, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise _DamagedError("it ends within a number")
        byte = message[place]
        value, place = value | (byte & 0x7F) << shift, place + 1
        if byte < 0x80:
            return value, place
    raise _DamagedError("a number of more than 64 bits")
