"""The files of a run that are stored: which there are, and in which way each is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from boxcrew.core.lock_owner import LOCK_FILES
from boxcrew.core.storage.copies import COMMIT
from boxcrew.train.run.solve import WORKSPACE

_CHECKPOINT = re.compile(r"(?P<folder>(?:.+/)?checkpoints/\d+)/[^/]+")
_GROWING = re.compile(r".+\.(jsonl|log)|(.+/)?events\.out\.tfevents\.[^/]+")

Sign = tuple[int, int, int]
"""The size of a file, its time and its number: one of them changes when the file is written anew."""


def list_files(folder: Path) -> dict[str, Sign]:
    """Return the files of a run by their names below its directory, without locks, temporary files, and what
    a stage that is being solved can compute again.
    """
    files: dict[str, Sign] = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != WORKSPACE)
        relative = Path(parent).relative_to(folder).as_posix()
        for name in sorted(names):
            if name.startswith(".") or (relative == "." and name in LOCK_FILES):
                continue
            try:
                status = (Path(parent) / name).stat()
            except OSError:
                continue  # removed since it was listed
            sign = status.st_size, status.st_mtime_ns, status.st_ino
            files[name if relative == "." else f"{relative}/{name}"] = sign
    return files


def checkpoints_of(names: Iterable[str]) -> dict[str, set[str]]:
    """Return the files of each finished checkpoint by its directory, the oldest first."""
    folders: dict[str, set[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            folders.setdefault(match["folder"], set()).add(name)
    finished = {folder: files for folder, files in folders.items() if f"{folder}/{COMMIT}" in files}
    return dict(sorted(finished.items(), key=lambda item: int(PurePosixPath(item[0]).name)))


def grows(name: str) -> bool:
    """Return whether lines are added to a file of this name."""
    return _GROWING.fullmatch(name) is not None


def is_commit(name: str) -> bool:
    return PurePosixPath(name).name == COMMIT
