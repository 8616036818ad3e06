"""What is written is what safetensors reads."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from boxcrew.nets.weights import write_tensors

TYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]
SHAPES = st.lists(st.integers(0, 5), max_size=4)


@given(
    st.dictionaries(st.text(min_size=1), st.tuples(SHAPES, st.sampled_from(TYPES)), min_size=1, max_size=8)
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, wanted: dict[str, tuple[list[int], torch.dtype]]
) -> None:
    noise = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randint(0, 2, shape, generator=noise).to(dtype)
        for name, (shape, dtype) in wanted.items()
        if name != "__metadata__"
    }
    path = tmp_path_factory.getbasetemp() / "tensors.safetensors"
    checksum = write_tensors(path, tensors)
    assert checksum == zlib.crc32(path.read_bytes())
    read = safetensors.torch.load_file(path)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


def test_layouts_views_and_metadata(tmp_path: Path) -> None:
    base = torch.arange(48.0).reshape(1, 3, 4, 4)
    tensors = {
        "last": base.to(memory_format=torch.channels_last),
        "part": base[:, 1:, ::2],
        "turned": base[0, 0].t(),
        "learned": torch.nn.Parameter(base),
    }
    path = tmp_path / "tensors.safetensors"
    write_tensors(path, tensors, {"boxcrew": "{}"})
    read = safetensors.torch.load_file(path)
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"boxcrew": "{}"}
