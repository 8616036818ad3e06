"""Checkpoints: directories with tensors (safetensors), a JSON state, and a COMMIT marker written last."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from boxcrew.core.errors import ModelError
from boxcrew.core.fence import require_own
from boxcrew.core.files import flush
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.nets.weights import write_tensors

FORMAT = 2
_TENSORS, _STATE, _COMMIT = "tensors.safetensors", "state.json", "COMMIT"


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """Everything that a run needs to continue as if it had never stopped."""

    step: int
    tensors: Mapping[str, Tensor]  # "<owner>/<name>": owners are the task, the optimizer and hooks
    state: Mapping[str, Any]  # JSON values
    run: Mapping[str, Any] = field(default_factory=dict)  # JSON values: what the run was made with

    @property
    def elapsed(self) -> float:
        """Seconds of training up to its step."""
        elapsed: float = self.state["elapsed"]
        return elapsed

    @property
    def plain_optimizer_state(self) -> Mapping[str, Any]:
        """The state of the optimizer but for its tensors: see `OptimizerState.plain`."""
        plain: Mapping[str, Any] = self.state["optimizer"]
        return plain

    def num_bytes(self) -> int:
        """Return the size of its tensors, which is that of its files but for some kilobytes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def tensors_by_owner(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of the task, the optimizer and each hook, by their own names."""
        owners: dict[str, dict[str, Tensor]] = {}
        for name, tensor in self.tensors.items():
            owner, _, inner = name.partition("/")
            owners.setdefault(owner, {})[inner] = tensor
        return owners

    def hook_state(self, name: str) -> Mapping[str, Any]:
        """Return what the hook of that name has stored; empty if there was none."""
        state: Mapping[str, Any] = self.state["hooks"].get(name, {})
        return state

    def with_hook_state(self, name: str, state: Mapping[str, Any]) -> Checkpoint:
        """Return a copy in which that hook has another state."""
        return replace(self, state={**self.state, "hooks": {**self.state["hooks"], name: state}})


def broadcast_checkpoint(checkpoint: Checkpoint | None, group: ReplicaGroup) -> Checkpoint:
    """Return the chief's checkpoint on all replicas. The others pass None and need not have its files."""
    own: dict[str, Any] | None = None
    if checkpoint is not None:
        tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
        types = {n: (str(t.dtype).removeprefix("torch."), list(t.shape)) for n, t in tensors.items()}
        own = {"step": checkpoint.step, "state": dict(checkpoint.state), "tensors": types}
    header = group.broadcast_json(own)
    if checkpoint is None:
        types = header["tensors"]
        tensors = {n: torch.empty(shape, dtype=getattr(torch, t)) for n, (t, shape) in types.items()}
    # As bytes, because not every dtype can be broadcast; sorted, so that all replicas have the same order.
    group.broadcast([tensors[name].view(-1).view(torch.uint8) for name in sorted(tensors)])
    return Checkpoint(step=header["step"], tensors=tensors, state=header["state"])


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `folder/<step>`. If that fails or is cut off, no reader will ever choose what is there."""
    path = folder / f"{checkpoint.step:08d}"
    require_own(path)
    temporary = folder / f".{path.name}.{os.getpid()}"
    for leftover in folder.glob(".[0-9]*.[0-9]*"):  # of processes that were killed while writing
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        sums = {_TENSORS: write_tensors(temporary / _TENSORS, checkpoint.tensors)}
        content = {"step": checkpoint.step, "run": checkpoint.run, "state": checkpoint.state}
        (temporary / _STATE).write_text(json.dumps(content))
        sums[_STATE] = checksum(temporary / _STATE)
        for written in (temporary / _TENSORS, temporary / _STATE, temporary):
            flush(written)
        commit = {"format": FORMAT, "step": checkpoint.step, "crc32": sums}
        (temporary / _COMMIT).write_text(json.dumps(commit))
        flush(temporary / _COMMIT)
        flush(temporary)
        require_own(path)  # once more: writing takes long
        if path.exists():  # a resumed run reaches the same step again
            shutil.rmtree(path)
        temporary.replace(path)
        flush(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raise `ModelError` if it is incomplete or damaged."""
    content = _read_verified(path, (_TENSORS, _STATE))
    tensors = safetensors.torch.load_file(path / _TENSORS)
    return Checkpoint(tensors=tensors, **content)


def read_run(path: Path) -> tuple[int, Mapping[str, Any]]:
    """Return the step of a checkpoint and what its run was made with; its tensors are not read."""
    content = _read_verified(path, (_STATE,))
    return content["step"], content["run"]


def _read_verified(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Return all but the tensors of a checkpoint; raise `ModelError` unless these files are as written."""
    try:
        commit = json.loads((path / _COMMIT).read_text())
    except FileNotFoundError:
        raise ModelError(f"{path}: not a finished checkpoint: it has no {_COMMIT}") from None
    except ValueError:
        raise ModelError(f"{path / _COMMIT}: cut off or damaged") from None
    if commit.get("format") != FORMAT:
        raise ModelError(
            f"{path}: checkpoint format {commit.get('format')}, but this version reads {FORMAT}",
            advice="resume with the version that wrote it, or start anew from its weights with init=finetune",
        )
    for name in names:
        if not (path / name).is_file() or checksum(path / name) != commit.get("crc32", {}).get(name):
            raise ModelError(f"{path / name}: damaged: its checksum is not the one in {_COMMIT}")
    # The step in COMMIT has no checksum, so that of the state is used.
    content: dict[str, Any] = json.loads((path / _STATE).read_text())
    return content


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the paths of all committed checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    paths = [p for p in folder.iterdir() if p.name.isdigit() and (p / _COMMIT).is_file()]
    return sorted(paths, key=lambda path: int(path.name))


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest undamaged checkpoint, and a message about each newer one that is damaged."""
    problems: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            return read_checkpoint(path), problems
        except ModelError as error:
            problems.append(error.message)
    return None, problems


def remove_old(folder: Path, *, last: int, keep: int, spare: Collection[int] = ()) -> None:
    """Remove all but the `keep` newest checkpoints up to step `last`, just written, and those in `spare`.
    Later ones are damaged checkpoints that this run could not resume from: they neither count nor are
    removed.
    """
    for path in [p for p in list_checkpoints(folder) if int(p.name) <= last][:-keep]:
        if int(path.name) not in spare:
            _remove(path)


def remove_newer(folder: Path, *, than: int) -> None:
    """Remove the checkpoints of a run that rolls back to step `than`."""
    for path in list_checkpoints(folder):
        if int(path.name) > than:
            _remove(path)


def _remove(path: Path) -> None:
    require_own(path)
    # The marker first, so that a half-removed checkpoint is never taken for a complete one.
    (path / _COMMIT).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def checksum(path: Path) -> int:
    """Return the crc32 of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
