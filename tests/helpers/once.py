"""Files that are made once for all processes that share the tests."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

MakeOnce = Callable[[str, Callable[[Path], object]], Path]
"""`(name, make)`: a folder that `make` fills in one of the processes. All read it, and none changes it."""


def make_once(shared: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder in `shared` that `make` has filled, in this process or in another."""
    folder, finished = shared / name, shared / f"{name}.finished"
    shared.mkdir(exist_ok=True)
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed to fill it
            folder.mkdir()
            make(folder)
            finished.touch()
        fcntl.flock(lock, fcntl.LOCK_UN)  # children that were forked meanwhile may keep the file open
    return folder
