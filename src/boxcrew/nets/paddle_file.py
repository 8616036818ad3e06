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
from boxcrew.core.protobuf import NotProtobufError, as_bytes, as_integer, fields

SUFFIX = ".pdiparams"

_DTYPES = {2: torch.int32, 3: torch.int64, 4: torch.float16, 5: torch.float32, 6: torch.float64}
"""VarType.Type of elements."""

_LOD_TENSOR = 7  # VarType.Type of variables that are tensors; others feed and fetch


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
    except (_DamagedError, NotProtobufError) as error:
        raise ModelError(f"{program}: not a PaddlePaddle model, or damaged: {error}") from None
    try:
        return _tensors(path.read_bytes(), wanted)
    except (_DamagedError, NotProtobufError) as error:
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
    if any(zeros) or _description(memoryview(content)[place + header.size : begin]) != wanted:
        raise _DamagedError(f"the record of {name} has another type or shape, or begins elsewhere")
    end = begin + math.prod(wanted.shape) * wanted.dtype.itemsize
    if end > len(content):
        raise _DamagedError(f"it ends within {name}")
    numbers = torch.frombuffer(bytearray(content[begin:end]), dtype=wanted.dtype)
    return numbers.reshape(wanted.shape), end


def _parameters(content: bytes) -> dict[str, _Description]:
    """Return the tensors that the model keeps (VarDesc: persistable), by name."""
    parameters: dict[str, _Description] = {}
    for block in _messages(memoryview(content), 1):
        for variable in _messages(block, 3):
            parts = dict(fields(variable))
            kind = dict(fields(as_bytes(parts.get(2))))
            if parts.get(3) != 1 or kind.get(1) != _LOD_TENSOR:
                continue
            tensor = dict(fields(as_bytes(kind.get(3))))
            name = bytes(as_bytes(parts.get(1))).decode(errors="replace")
            parameters[name] = _description(as_bytes(tensor.get(1)))
    if not parameters:
        raise _DamagedError("it has no parameters")
    return parameters


def _description(message: memoryview) -> _Description:
    parts = list(fields(message))
    dtype = _DTYPES.get(as_integer(dict(parts).get(1)))
    shape = tuple(as_integer(value) for number, value in parts if number == 2)
    if dtype is None or not all(0 < side < 1 << 31 for side in shape):
        raise _DamagedError("a tensor of an unknown type or shape")
    return _Description(dtype, shape)


def _messages(message: memoryview, number: int) -> Iterator[memoryview]:
    """Yield the contents of the fields of that number."""
    return (as_bytes(value) for field, value in fields(message) if field == number)
