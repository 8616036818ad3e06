"""Finding the runs in a folder: trainings, those with stages, and comparisons."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from boxcrew.core.lock_owner import LOCK
from boxcrew.serve.watch.reading import JsonRecord, is_file, is_folder, opened

Kind = Literal["run", "staged", "stage", "comparison"]

MAX_RUNS = 300
_MAX_FOLDERS = 5000
_MAX_DEPTH = 4  # of folders in folders
_INSIDE = {"checkpoints", "weights", "plots", "tensorboard", "export", "workspace"}  # a run
_SIGNS = ("plan.json", "status.json", "metrics.jsonl", LOCK)


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """A run, or several that belong together."""

    key: str  # what the page calls it by
    name: str
    folder: Path
    kind: Kind = "run"
    parent: str | None = None  # key of the run or comparison that it is a part of
    stage: str | None = None  # of a stage: waiting, begun or finished
    stage_kind: str | None = None  # of a stage: descend or solve


def find_runs(roots: tuple[Path, ...]) -> list[RunEntry]:
    """Return the runs in all folders, each part after the whole that it belongs to. A folder that is gone
    stays in the list, since the user has named it.
    """
    names = [readable(root.name) for root in roots]
    if len(set(names)) < len(names):
        names = [readable(str(root)) for root in roots]
    entries: list[RunEntry] = []
    visits = iter(range(_MAX_FOLDERS))
    for root, name in zip(roots, names, strict=True):
        if not is_folder(root) or _kind(root) is not None:
            entries += _entries(RunEntry(key=name, name=name, folder=root))
        else:
            prefix = f"{name}/" if len(roots) > 1 else ""
            entries += _below(root, prefix, visits, depth=0)
    unique = {entry.key: entry for entry in entries}
    return list(unique.values())[:MAX_RUNS]


def _below(folder: Path, prefix: str, visits: Iterator[int], *, depth: int) -> Iterator[RunEntry]:
    for child in _subfolders(folder):
        if next(visits, None) is None:
            return
        key = f"{prefix}{readable(child.name)}"
        if _kind(child) is not None:
            yield from _entries(RunEntry(key=key, name=key, folder=child))
        elif depth < _MAX_DEPTH and child.name not in _INSIDE:
            yield from _below(child, f"{key}/", visits, depth=depth + 1)


def _entries(entry: RunEntry) -> Iterator[RunEntry]:
    """Yield a run with its stages, or a comparison with its runs."""
    kind = _kind(entry.folder) or "run"
    yield replace(entry, kind=kind)
    if kind == "staged":
        for stage in _read(entry.folder / "stages.json").records("stages", limit=20):
            name = stage.text("folder", limit=100)
            if name and name == Path(name).name and name not in {".", ".."}:
                yield RunEntry(
                    key=f"{entry.key}/{name}",
                    name=name,
                    folder=entry.folder / name,
                    kind="stage",
                    parent=entry.key,
                    stage=stage.text("state"),
                    stage_kind=stage.text("kind"),
                )
    if kind == "comparison":
        for child in _subfolders(entry.folder):
            if _kind(child) in {"run", "staged"}:
                name = readable(child.name)
                key = f"{entry.key}/{name}"
                yield from _entries(RunEntry(key=key, name=name, folder=child, parent=entry.key))


def _kind(folder: Path) -> Kind | None:
    """Return whether a folder is a run, a run with stages or a comparison; None if it is none of these."""
    if is_file(folder / "comparison.json"):
        return "comparison"
    if is_file(folder / "stages.json"):
        return "staged"
    return "run" if any(is_file(folder / name) for name in _SIGNS) else None


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:  # it is being removed, or may not be read
        return []
    return [folder / name for name in sorted(names)[:_MAX_FOLDERS]]


def _read(path: Path) -> JsonRecord:
    with opened(path) as file:
        content = b"" if file is None else file.read(1 << 20)
    try:
        return JsonRecord(json.loads(content))
    except (ValueError, RecursionError):
        return JsonRecord()


def readable(name: str) -> str:
    """Return a name of a folder, which may be any bytes, as text."""
    return os.fsencode(name).decode(errors="replace")
