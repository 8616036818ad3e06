"""Exported files are read only if nothing about them is damaged or leads out of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from boxcrew.core.errors import ModelError
from boxcrew.core.protobuf import field_bytes, fields
from boxcrew.runtime import onnx_fields
from boxcrew.runtime.model_file import MODEL, is_model_file, read_model, with_description, write_model
from boxcrew.runtime.model_info import ModelInfo

INFO = ModelInfo(
    predicts="classes",
    network="fc",
    classes=("cup", "Löffel"),
    weights="0" * 64,
    task={"name": "classification"},
    facts={"classes": ["cup", "Löffel"]},
)


def tensor(*members: bytes) -> bytes:
    return field_bytes(5, b"".join(members))  # an initializer of a graph


def model(*initializers: bytes) -> bytes:
    version = bytes([1 << 3, 10])  # ir_version
    return version + field_bytes(onnx_fields.GRAPH, b"".join(initializers))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    content = model(tensor(field_bytes(9, bytes(range(256)) * 8)))
    write_model(file, {MODEL: content}, INFO)
    return file


def test_a_file_is_read_as_it_was_written(path: Path) -> None:
    read = read_model(path)
    assert read.info == INFO
    assert read.onnx == path.read_bytes()
    assert is_model_file(path)
    assert not is_model_file(path.with_suffix(".safetensors"))


def test_the_description_is_in_the_metadata_that_other_programs_read(path: Path) -> None:
    parts = fields(memoryview(path.read_bytes()))
    entries = dict(onnx_fields.read_entry(value) for number, value in parts if number == onnx_fields.METADATA)
    assert list(entries) == ["boxcrew", "boxcrew_sha256"]
    assert ModelInfo.of(json.loads(entries["boxcrew"])) == INFO


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "model_openvino"
    write_model(folder, {"model.xml": b"<net/>", "model.bin": b"12"}, INFO)
    read = read_model(folder)
    assert (read.info, read.files, read.onnx) == (INFO, {"model.xml": b"<net/>", "model.bin": b"12"}, None)
    assert is_model_file(folder)
    assert not is_model_file(tmp_path)
    (folder / "model.bin").write_bytes(b"13")
    with pytest.raises(ModelError, match=r"model\.bin: is damaged"):
        read_model(folder)


def test_a_folder_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model", {"model.xml": b""}, INFO)
    file = tmp_path / "model" / "boxcrew.json"
    file.write_text(file.read_text().replace("model.xml", "../secret"))
    with pytest.raises(ModelError, match="names a file outside of its folder"):
        read_model(tmp_path / "model")


def test_any_changed_byte_is_found(path: Path) -> None:
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ModelError, match=r"model\.onnx: "):
            read_model(path)


def test_a_file_that_is_cut_anywhere_is_refused(path: Path) -> None:
    content = path.read_bytes()
    for length in range(0, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match="not a file that boxcrew has exported"):
            read_model(path)


def test_more_at_the_end_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + onnx_fields.metadata_entry("author", "somebody"))
    with pytest.raises(ModelError, match="not a file that boxcrew has exported"):
        read_model(path)


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n", b"PK\x03\x04" * 100, model()])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.onnx"
    file.write_bytes(content)
    with pytest.raises(ModelError, match="not a file that boxcrew has exported") as caught:
        read_model(file)
    assert "boxcrew export" in caught.value.advice


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx: cannot be read: No such file"):
        read_model(tmp_path / "none.onnx")


def test_tensors_in_other_files_are_refused(tmp_path: Path) -> None:
    location = field_bytes(1, b"location") + field_bytes(2, b"../../secret")
    file = tmp_path / "split.onnx"
    file.write_bytes(with_description(model(tensor(field_bytes(13, location))), INFO))
    with pytest.raises(ModelError, match="keeps tensors in other files"):
        read_model(file)


def test_a_description_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    body = model() + onnx_fields.metadata_entry("boxcrew", '{"predicts": "smells"}')
    digest = hashlib.sha256(body).hexdigest()
    file = tmp_path / "newer.onnx"
    file.write_bytes(body + onnx_fields.metadata_entry("boxcrew_sha256", digest))
    with pytest.raises(ModelError, match="its description is not understood"):
        read_model(file)
