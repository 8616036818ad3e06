"""Exported files on disk, with their description and a digest that shows damage.

An ONNX file carries both itself, at its end. Other kinds of files are in a folder of their own, with the
description and the digest of each in `boxcrew.json`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.files import write_atomically, write_json
from boxcrew.core.protobuf import NotProtobufError, fields
from boxcrew.runtime import onnx_fields
from boxcrew.runtime.model_info import ModelInfo

ONNX, MODEL, DESCRIPTION = ".onnx", "model.onnx", "boxcrew.json"
INFO, DIGEST = "boxcrew", "boxcrew_sha256"  # keys of the metadata of an ONNX file

_HEX = 64  # letters of a digest
_END = len(onnx_fields.metadata_entry(DIGEST, "0" * _HEX))  # bytes of the entry with the digest, the last one
_ADVICE = "boxcrew export run=DIR writes one"


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFile:
    """An exported network that is undamaged."""

    path: Path  # of the ONNX file, or of the folder
    info: ModelInfo
    files: Mapping[str, bytes]  # contents by name

    @property
    def onnx(self) -> bytes | None:
        """The content of an ONNX file; None for another kind of file."""
        return self.files.get(MODEL)


def is_model_file(path: Path) -> bool:
    """Return whether a path names an exported network."""
    return path.suffix.lower() == ONNX or (path / DESCRIPTION).is_file()


def with_description(model: bytes, info: ModelInfo) -> bytes:
    """Return an ONNX model with its description and its digest."""
    body = model + onnx_fields.metadata_entry(INFO, json.dumps(info.tree()))
    return body + onnx_fields.metadata_entry(DIGEST, hashlib.sha256(body).hexdigest())


def write_model(path: Path, files: Mapping[str, bytes], info: ModelInfo) -> None:
    """Write an exported network: an ONNX file, or a new folder of other files."""
    if MODEL in files:
        write_atomically(path, lambda file: file.write_bytes(with_description(files[MODEL], info)))
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as name:
        folder = Path(name) / path.name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        digests = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
        write_json(folder / DESCRIPTION, {"info": info.tree(), "files": digests})
        folder.rename(path)


def read_model(path: Path) -> ModelFile:
    """Read an exported network; `ModelError` if it is none, is damaged, or keeps tensors elsewhere."""
    return _read_folder(path) if path.is_dir() else _read_onnx(path)


def _read_onnx(path: Path) -> ModelFile:
    content = _read(path)
    _require_digest(path, content)
    try:
        parts = list(fields(memoryview(content)))
        entries = dict(
            onnx_fields.read_entry(value) for number, value in parts if number == onnx_fields.METADATA
        )
        is_split = onnx_fields.has_external_data(memoryview(content))
    except NotProtobufError as error:
        raise ModelError(f"{path}: not an ONNX file: {error}") from None
    if is_split:
        raise ModelError(f"{path}: keeps tensors in other files, which boxcrew never writes or reads")
    try:
        description = json.loads(entries[INFO])
    except (KeyError, ValueError):
        raise ModelError(f"{path}: has no description by boxcrew") from None
    return ModelFile(path=path, info=_description(path, description), files={MODEL: content})


def _require_digest(path: Path, content: bytes) -> None:
    """Compare the digest of the content with that at its end."""
    try:
        ((number, value),) = fields(memoryview(content[-_END:]))
        key, stored = onnx_fields.read_entry(value)
    except ValueError:  # no protocol buffer, or several fields
        number, key, stored = 0, "", ""
    if number != onnx_fields.METADATA or key != DIGEST:
        message = f"{path}: not a file that boxcrew has exported, or its end is missing"
        raise ModelError(message, advice=_ADVICE)
    if hashlib.sha256(memoryview(content)[:-_END]).hexdigest() != stored:
        raise _damaged(path)


def _read_folder(path: Path) -> ModelFile:
    file = path / DESCRIPTION
    try:
        stored = json.loads(_read(file))
        digests, description = dict(stored["files"]), stored["info"]
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"{file}: not a description by boxcrew", advice=_ADVICE) from None
    files: dict[str, bytes] = {}
    for name, digest in digests.items():
        if Path(name).name != name:
            raise ModelError(f"{file}: names a file outside of its folder: {name}")
        files[name] = _read(path / name)
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise _damaged(path / name)
    return ModelFile(path=path, info=_description(file, description), files=files)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None


def _damaged(path: Path) -> ModelError:
    return ModelError(f"{path}: is damaged: its checksum is wrong", advice="export it again")


def _description(path: Path, description: Any) -> ModelInfo:
    try:
        return ModelInfo.of(description)
    except UsageError as error:
        problem = f"{path}: its description is not understood: {error.message}"
        raise ModelError(problem, advice="it may be of another version: export it again") from None
