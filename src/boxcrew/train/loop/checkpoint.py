"""Saved states: a directory of tensors (safetensors), the rest as JSON, and a COMMIT marker written last."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from boxcrew.core.errors import ModelError
from boxcrew.core.files import flush
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.nets.tensor_file import write_tensors

FORMAT = 1
_TENSORS, _STATE, _COMMIT = "tensors.safetensors", "state.json", "COMMIT"


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped."""

    step: int
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]  # JSON values

    def num_bytes(self) -> int:
        """That its files take, but for some kilobytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def shared(own: Checkpoint | None, group: ReplicaGroup) -> Checkpoint:
    """The chief's checkpoint, on all replicas: the others, who give none, need not have its files."""
    told = group.broadcast_json(_description(own) if own is not None else None)
    if own is not None:
        tensors = {name: tensor.contiguous() for name, tensor in own.tensors.items()}
    else:
        kinds = told["tensors"].items()
        tensors = {name: torch.empty(shape, dtype=getattr(torch, kind)) for name, (kind, shape) in kinds}
    # As bytes, for not all kinds of numbers can travel; in the order of the names, which all have.
    group.broadcast([tensors[name].view(-1).view(torch.uint8) for name in sorted(tensors)])
    return Checkpoint(step=told["step"], tensors=tensors, state=told["state"])


def _description(checkpoint: Checkpoint) -> dict[str, Any]:
    kinds = {n: (str(t.dtype).removeprefix("torch."), list(t.shape)) for n, t in checkpoint.tensors.items()}
    return {"step": checkpoint.step, "state": dict(checkpoint.state), "tensors": kinds}


def checkpoint_place(folder: Path, step: int) -> Path:
    return folder / f"{step:08d}"


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes `folder/<step>`; if it fails, or is cut off, no reader will ever choose what is there."""
    place = checkpoint_place(folder, checkpoint.step)
    temporary = folder / f".{place.name}.{os.getpid()}"
    for leftover in folder.glob(".[0-9]*.[0-9]*"):  # of processes that were killed while they wrote
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        sums = {_TENSORS: write_tensors(temporary / _TENSORS, checkpoint.tensors)}
        (temporary / _STATE).write_text(json.dumps({"step": checkpoint.step, **checkpoint.state}))
        sums[_STATE] = _checksum(temporary / _STATE)
        for name in sums:
            flush(temporary / name)
        flush(temporary)
        commit = {"format": FORMAT, "step": checkpoint.step, "crc32": sums}
        (temporary / _COMMIT).write_text(json.dumps(commit))
        flush(temporary / _COMMIT)
        flush(temporary)
        if place.exists():  # a resumed run that comes by the same step again
            shutil.rmtree(place)
        temporary.replace(place)
        flush(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return place


def read_checkpoint(place: Path) -> Checkpoint:
    """A whole and unharmed checkpoint, or `ModelError`."""
    try:
        commit = json.loads((place / _COMMIT).read_text())
    except FileNotFoundError:
        raise ModelError(f"{place}: not a finished checkpoint: it has no {_COMMIT}") from None
    except ValueError:
        raise ModelError(f"{place / _COMMIT}: cut off or damaged") from None
    if commit.get("format") != FORMAT:
        raise ModelError(
            f"{place}: checkpoint format {commit.get('format')}, but this version reads {FORMAT}",
            advice="resume with the version that wrote it, or start anew with init=finetune from its weights",
        )
    for name in (_TENSORS, _STATE):
        if not (place / name).is_file() or _checksum(place / name) != commit.get("crc32", {}).get(name):
            raise ModelError(f"{place / name}: damaged: its checksum is not the one in {_COMMIT}")
    tensors = safetensors.torch.load_file(place / _TENSORS)
    state = json.loads((place / _STATE).read_text())
    # The marker's own number has no checksum, so it is not believed.
    return Checkpoint(step=state.pop("step"), tensors=tensors, state=state)


def list_checkpoints(folder: Path) -> list[Path]:
    """Committed ones, oldest first."""
    if not folder.is_dir():
        return []
    places = [p for p in folder.iterdir() if p.name.isdigit() and (p / _COMMIT).is_file()]
    return sorted(places, key=lambda place: int(place.name))


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest unharmed one, and what is to be said about newer ones that are not."""
    complaints: list[str] = []
    for place in reversed(list_checkpoints(folder)):
        try:
            return read_checkpoint(place), complaints
        except ModelError as error:
            complaints.append(error.message)
    return None, complaints


def remove_old(folder: Path, *, last: int, keep: int, spare: Collection[int] = ()) -> None:
    """Keeps the `keep` newest up to step `last`, which was just written, and those of the steps in `spare`.
    Any after it are damaged ones that this run went back behind: they neither count nor are touched.
    """
    for place in [p for p in list_checkpoints(folder) if int(p.name) <= last][:-keep]:
        if int(place.name) not in spare:
            _remove(place)


def remove_newer(folder: Path, *, than: int) -> None:
    """Takes away what a run did that goes back to step `than`."""
    for place in list_checkpoints(folder):
        if int(place.name) > than:
            _remove(place)


def _remove(place: Path) -> None:
    # Without its marker a half-removed checkpoint cannot be taken for a whole one.
    (place / _COMMIT).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
