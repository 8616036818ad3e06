"""PaddlePaddle's parameter files: whole, damaged and foreign ones, written here as the format says."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from boxcrew.core.errors import ModelError
from boxcrew.nets.paddle_file import read_paddle
from boxcrew.nets.weights import read_weights

CODES = {torch.int32: 2, torch.int64: 3, torch.float16: 4, torch.float32: 5, torch.float64: 6}
TENSORS = {
    "norm.w_0": torch.rand(2, dtype=torch.float64),
    "conv.w_0": torch.arange(300.0).reshape(2, 150, 1),
    "conv.b_0": torch.tensor([-1, 1 << 40]),
}


def varint(value: int) -> bytes:
    more = b""
    while value > 127:
        more += bytes([value & 127 | 128])
        value >>= 7
    return more + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def described(tensor: Tensor) -> bytes:
    return field(1, CODES[tensor.dtype]) + b"".join(field(2, side) for side in tensor.shape)


def variable(name: str, kind: bytes, *, kept: bool) -> bytes:
    return field(1, name.encode()) + field(2, kind) + field(3, int(kept))


def program(tensors: Mapping[str, Tensor]) -> bytes:
    """A model with these parameters, a temporary tensor, what is fed to it, an operation and a version."""
    kinds = {
        name: field(1, 7) + field(3, field(1, described(tensor)) + field(2, 0))
        for name, tensor in tensors.items()
    }
    variables = [variable(name, kind, kept=True) for name, kind in kinds.items()]
    variables.append(variable("feed", field(1, 9), kept=True))
    variables.append(variable("a.tmp_0", next(iter(kinds.values())), kept=False))
    operation = field(3, b"conv2d") + varint(4 << 3 | 5) + struct.pack("<f", 0.5)
    block = field(1, 0) + b"".join(field(3, each) for each in variables) + field(4, operation)
    return field(1, block) + field(4, field(1, 0))


def records(tensors: Mapping[str, Tensor]) -> bytes:
    parts = []
    for _, tensor in sorted(tensors.items()):
        description = described(tensor)
        parts += [struct.pack("<IQII", 0, 0, 0, len(description)), description, tensor.numpy().tobytes()]
    return b"".join(parts)


def write(folder: Path, model: bytes, params: bytes) -> Path:
    (folder / "m.pdmodel").write_bytes(model)
    (folder / "m.pdiparams").write_bytes(params)
    return folder / "m.pdiparams"


def test_tensors_are_read_under_their_names(tmp_path: Path) -> None:
    state = read_weights(write(tmp_path, program(TENSORS), records(TENSORS))).state
    assert state.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert state[name].dtype == tensor.dtype
        assert torch.equal(state[name], tensor)


def test_files_cut_anywhere_are_refused(tmp_path: Path) -> None:
    model, params = program(TENSORS), records(TENSORS)
    for length in range(len(params)):
        with pytest.raises(ModelError, match=r"m\.pdiparams: not the parameters of m\.pdmodel, or damaged"):
            read_paddle(write(tmp_path, model, params[:length]))
    for length in range(len(model) - 4):  # the last field is the version, which is not read
        with pytest.raises(ModelError, match=r"m\.pdmodel: not a PaddlePaddle model, or damaged"):
            read_paddle(write(tmp_path, model[:length], params))
    with pytest.raises(ModelError, match="1 bytes after the last tensor"):
        read_paddle(write(tmp_path, model, params + b"\0"))


def test_a_changed_bit_is_an_error_or_changes_a_number(tmp_path: Path) -> None:
    model, params = program(TENSORS), records(TENSORS)
    headers = len(params) - sum(tensor.nbytes for tensor in TENSORS.values())
    num_refused = 0
    for place in range(len(params)):
        for bit in (0, 6):
            changed = bytearray(params)
            changed[place] ^= 1 << bit
            try:
                state = read_paddle(write(tmp_path, model, bytes(changed)))
            except ModelError:
                num_refused += 1
                continue
            assert {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in TENSORS.items()}
    assert num_refused == 2 * headers


@given(st.integers(0, len(program(TENSORS)) - 1), st.integers(0, 255))
def test_no_changed_byte_of_the_model_is_more_than_an_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    changed = bytearray(program(TENSORS))
    changed[place] = value
    path = write(tmp_path_factory.getbasetemp(), bytes(changed), records(TENSORS))
    with suppress(ModelError):
        assert len(read_paddle(path)) == len(TENSORS)


@given(st.binary(max_size=64))
def test_other_files_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    with pytest.raises(ModelError, match=r"not a PaddlePaddle model"):
        read_paddle(write(folder, content, b"x"))
    with pytest.raises(ModelError, match="not the parameters"):
        read_paddle(write(folder, program(TENSORS), content))


def test_a_file_of_enormous_tensors_takes_no_memory(tmp_path: Path) -> None:
    huge = field(1, 5) + field(2, 1 << 30) * 3
    model = field(1, field(3, variable("w", field(1, 7) + field(3, field(1, huge)), kept=True)))
    params = struct.pack("<IQII", 0, 0, 0, len(huge)) + huge + bytes(64)
    with pytest.raises(ModelError, match="it ends within w"):
        read_paddle(write(tmp_path, model, params))


def test_the_model_must_be_beside_its_parameters(tmp_path: Path) -> None:
    path = write(tmp_path, program(TENSORS), records(TENSORS))
    (tmp_path / "m.pdmodel").unlink()
    with pytest.raises(ModelError, match=r"m\.pdmodel is not beside it") as caught:
        read_weights(path)
    assert "keep both files together" in caught.value.advice
