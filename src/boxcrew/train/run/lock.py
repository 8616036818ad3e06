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
from boxcrew.core.fence import fenced
from boxcrew.core.lock_owner import LOCK, Owner, owner_of, read_owner
from boxcrew.train.run.lease import Lease, Sign, is_renewed, next_generation, remove_lease, sign_of


@contextlib.contextmanager
def locked(folder: Path, info: Callable[[str], None], *, new: bool = False) -> Iterator[None]:
    """Create the directory if necessary, and lock it. Raise `UsageError` if another run holds the lock, and
    with `new` `FileExistsError` if the directory exists. Created directories that stay empty are removed
    again.
    """
    created = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=not new)
        lease = _acquire(folder / LOCK, info)
    except OSError as error:
        # The error is the same if a parent is a file or a dangling link.
        if new and isinstance(error, FileExistsError) and os.path.lexists(folder):
            raise
        _remove_empty(created)
        raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
    try:
        with fenced(folder, lease.require_own):
            yield
    finally:
        _release(folder / LOCK, lease)
        _remove_empty(created)


def _acquire(path: Path, info: Callable[[str], None]) -> Lease:
    """Become the owner. A process on another host has ended if its lease is not renewed while we watch it."""
    folder = path.parent
    expired: tuple[Owner, Sign] | None = None
    while True:
        with _opened(path, os.O_RDWR | os.O_CREAT) as handle:
            if not _is_at(handle, path):
                continue  # its owner has just removed the file
            owner = read_owner(handle)
            if owner is None or owner.is_dead() or expired == (owner, sign_of(folder)):
                return _take(handle, folder, owner, info)
            seen = owner, sign_of(folder)
        if not owner.is_here():
            info(f"lock: held by process {owner.pid} on {owner.host}: waiting for a sign of life from there")
        if owner.is_here() or (is_renewed(folder) and owner_of(folder) == owner):
            raise UsageError(
                f"{folder}: in use by process {owner.pid} on {owner.host}, since {owner.since}",
                advice=f"wait for it or end it; if it has surely ended, remove {path}",
            )
        expired = seen


def _take(handle: int, folder: Path, before: Owner | None, info: Callable[[str], None]) -> Lease:
    """Write this process's name to a lock that nobody holds any more."""
    me = Owner.me()
    if before is not None:
        reason = "has ended" if before.is_dead() else "gives no sign of life"
        info(f"lock: process {before.pid} on {before.host} {reason}; its lock is taken over")
    lease = Lease(folder, me, generation=next_generation(folder, before))
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(me)).encode(), 0)
    return lease


def _release(path: Path, lease: Lease) -> None:
    """Remove the files, unless another process has become the owner."""
    lease.close()
    with contextlib.suppress(OSError), _opened(path, os.O_RDWR) as handle:  # it may be gone, or read-only
        owner = read_owner(handle)
        if owner is not None and (owner.pid, owner.host) == (os.getpid(), socket.gethostname()):
            path.unlink()


def release_dead(folder: Path) -> None:
    """Remove the lock of a process that has ended without doing so."""
    with contextlib.suppress(OSError), _opened(folder / LOCK, os.O_RDWR) as handle:
        owner = read_owner(handle)
        if owner is not None and owner.is_dead():
            remove_lease(folder)
            (folder / LOCK).unlink()


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open a lock file, for a moment only: one process at a time reads the owner and becomes it."""
    handle = os.open(path, flags, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
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
