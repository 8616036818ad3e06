"""The lock of a run directory: a file that names the process which uses it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from boxcrew.core.errors import UsageError
from boxcrew.core.lock_owner import LOCK, Owner, read_owner


@contextlib.contextmanager
def locked(folder: Path, info: Callable[[str], None], *, new: bool = False) -> Iterator[None]:
    """Create the directory if necessary, and lock it. Raise `UsageError` if another run holds the lock, and
    with `new` `FileExistsError` if the directory exists. Created directories that stay empty are removed
    again.
    """
    created = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=not new)
        _acquire(folder / LOCK, info)
    except OSError as error:
        # The error is the same if a parent is a file or a dangling link.
        if new and isinstance(error, FileExistsError) and os.path.lexists(folder):
            raise
        _remove_empty(created)
        raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
    try:
        yield
    finally:
        _release(folder / LOCK)
        _remove_empty(created)


def _acquire(path: Path, info: Callable[[str], None]) -> None:
    me = Owner.me()
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Held for a moment only, so that one process at a time reads the owner and becomes it.
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_at(handle, path):
                continue  # its owner has just removed the file
            owner = read_owner(handle)
            if owner is not None and not owner.is_dead():
                raise UsageError(
                    f"{path.parent}: in use by process {owner.pid} on {owner.host}, since {owner.since}",
                    advice=f"wait for it or end it; if it has surely ended, remove {path}",
                )
            if owner is not None:
                info(f"lock: process {owner.pid} on {owner.host} has ended; its lock is taken over")
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(me)).encode(), 0)
            return
        finally:
            os.close(handle)


def _release(path: Path) -> None:
    """Remove the file, unless another process has become the owner."""
    with contextlib.suppress(OSError):  # the directory may be gone, or no longer writable
        handle = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            owner = read_owner(handle)
            if owner is not None and (owner.pid, owner.host) == (os.getpid(), socket.gethostname()):
                path.unlink()
        finally:
            os.close(handle)


def release_dead(folder: Path) -> None:
    """Remove the lock of a process that has ended without doing so."""
    with contextlib.suppress(OSError):
        handle = os.open(folder / LOCK, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            owner = read_owner(handle)
            if owner is not None and owner.is_dead():
                (folder / LOCK).unlink()
        finally:
            os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:  # the innermost first
        with contextlib.suppress(OSError):
            folder.rmdir()
