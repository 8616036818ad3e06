"""Weight files: writing them, reading them without running code from them, and matching them to a network."""

from __future__ import annotations

import json
import pickle
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from boxcrew.core.errors import ModelError, first_line
from boxcrew.core.files import write_all, write_atomically
from boxcrew.nets import paddle_file

State = dict[str, Tensor]

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The names of element types in safetensors files."""

_TORCH_FILES = (b"PK\x03\x04", b"\x80")
"""The first bytes of the files that torch writes: archives, and before its version 1.6 pickles."""

# Raised by torch's restricted unpickler on files that are cut, damaged, or not of tensors.
_UNREADABLE = (
    pickle.UnpicklingError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """Tensors with the facts that are needed to use them."""

    state: State
    source: str  # where they came from, for messages
    mean: tuple[float, ...] | None = None  # of the 0..1 pixels they were trained on, where known
    std: tuple[float, ...] | None = None
    meta: Mapping[str, Any] | None = None  # in files that boxcrew wrote: classes, detector settings


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> int:
    """Write a safetensors file and return its crc32.

    It goes through Python's own files: a full disk is then an `OSError` with its reason, other threads run
    meanwhile, and the checksum costs nothing.
    """
    # Wide element types first: then every tensor begins at a multiple of its element size.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, tensor in ordered:
        begin, end, shape = end, end + tensor.nbytes, list(tensor.shape)
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    checksum = 0
    with path.open("wb", buffering=0) as file:
        head = memoryview(len(text).to_bytes(8, "little") + text)
        flat = (tensor.detach().cpu().contiguous().reshape(-1) for _, tensor in ordered)
        for block in (head, *(tensor.view(torch.uint8).numpy().data for tensor in flat)):
            write_all(file, block)
            checksum = zlib.crc32(block, checksum)
    return checksum


def save_weights(path: Path, state: State, meta: Mapping[str, Any]) -> None:
    """Write a safetensors file with `meta` as JSON in its header."""
    header = {"boxcrew": json.dumps(meta)}
    write_atomically(path, lambda file: write_tensors(file, state, header))


def read_weights(path: Path) -> Weights:
    """Read a safetensors file, a torch file of tensors alone, or PaddlePaddle's parameters; a file that would
    run code is refused.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such weight file")
    if path.stat().st_size == 0:
        raise ModelError(f"{path}: an empty file, not weights")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix == paddle_file.SUFFIX:
        return Weights(state=paddle_file.read_paddle(path), source=str(path))
    with path.open("rb") as file:
        if not file.read(4).startswith(_TORCH_FILES):
            raise ModelError(
                f"{path}: not a weight file", advice="give a .safetensors, .pth, .pt or .pdiparams file"
            )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(
            f"{path}: holds more than tensors: {reason}",
            advice="save only the state dict, best as .safetensors; boxcrew does not unpickle other objects",
        ) from None
    for nested in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(nested), dict):
            content = content[nested]
    pairs = content.items() if isinstance(content, dict) else ()
    state = {str(name): value for name, value in pairs if isinstance(value, Tensor)}
    if not state:
        raise ModelError(f"{path}: holds no tensors by name")
    return Weights(state=state, source=str(path))


def find_weights(path: Path, *, which: str) -> Path:
    """Return the weight file for a run directory (its `best` or `last`) or for the path of a file."""
    if path.is_dir():
        names = (which, "last") if which == "best" else (which,)  # a run stopped early has no best yet
        files = [f"weights/{name}.safetensors" for name in names]
        for file in files:
            if (path / file).is_file():
                return path / file
        raise ModelError(f"{path}: not a run with weights: it has no {' or '.join(files)}")
    if not path.exists():
        raise ModelError(f"{path}: no such run or weight file")
    return path


def _read_safetensors(path: Path) -> Weights:
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: not a safetensors file: {error}") from None
    if not state:
        raise ModelError(f"{path}: holds no tensors by name")
    meta = json.loads(header["boxcrew"]) if "boxcrew" in header else None
    return Weights(state=state, source=str(path), meta=meta)


def require_timm_name(name: str) -> None:
    """Raise `ModelError` if timm has no network of that name; one with a prefix such as `hf-hub:` passes."""
    from boxcrew.nets.timm_networks import timm

    if ":" not in name and not timm.is_model(name.partition(".")[0]):
        raise ModelError(
            f"init.weights={name}: neither a weight file nor a network that timm has",
            advice="give a .safetensors or .pth file, or a name such as mobilenetv3_large_100, "
            "efficientnet_lite0 or picodet_coco",
        )


def timm_weights(name: str, *, features_only: bool) -> Weights:
    """Download timm's weights of a network, which the user has asked for by name.

    They are of all layers but the classifier, or with `features_only` of those that make its feature maps,
    under the names that timm uses there.
    """
    from boxcrew.nets.timm_networks import timm

    options = {"features_only": True} if features_only else {"num_classes": 0}
    try:
        model = timm.create_model(name, pretrained=True, **options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise ModelError(
            f"init.weights={name}: timm could not fetch these weights: {reason}",
            advice="without a network connection give a weight file, or init.weights=efficientnet_lite0",
        ) from None
    settings = timm.get_pretrained_cfg(name)
    return Weights(state=model.state_dict(), source=f"{name} (timm)", mean=settings.mean, std=settings.std)


def summed_over_colors(state: State) -> State:
    """Sum the first layer over its three input channels, for images of one channel."""
    return {
        name: value.sum(dim=1, keepdim=True) if value.ndim == 4 and value.shape[1] == 3 else value
        for name, value in state.items()
    }


def match_state(wanted: Mapping[str, Tensor], offered: State) -> tuple[State, str]:
    """Return the tensors of `offered` under the names of `wanted`, and how they were matched.

    `by name` where name and shape agree. If that is less than half, `by order` as far as shapes agree: the
    same network has different names in different libraries.
    """
    counters = "num_batches_tracked"  # only some libraries save them, and nothing depends on them
    ours = {name: value for name, value in wanted.items() if not name.endswith(counters)}
    theirs = {name: value for name, value in offered.items() if not name.endswith(counters)}
    named = {n: theirs[n] for n, value in ours.items() if n in theirs and theirs[n].shape == value.shape}
    if len(named) >= len(ours) / 2:
        return named, "by name"
    ordered: State = {}
    for (name, value), candidate in zip(ours.items(), theirs.values(), strict=False):
        if value.shape != candidate.shape:
            break
        ordered[name] = candidate
    # If only a few first layers agree, the weights are those of another network.
    return (ordered, "by order") if len(ordered) >= len(ours) / 2 else (named, "by name")
