"""The lock of a run directory: a file that names the process which uses it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from boxcrew.core.errors import UsageError

LOCK = "lock"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that holds a lock."""

    pid: int
    host: str
    born: str  # start time of the process, in ticks since boot: process ids are used again
    since: str  # time of day, for the error message

    @classmethod
    def me(cls) -> Owner:
        return cls(
            pid=os.getpid(),
            host=socket.gethostname(),
            born=_start_time(os.getpid()) or "",
            since=time.strftime("%Y-%m-%dT%H:%M:%S"),
        )

    def is_dead(self) -> bool:
        """Return whether the process has surely ended. That of another host is taken to be alive."""
        return self.host == socket.gethostname() and _start_time(self.pid) != self.born


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
            owner = _read(handle)
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
            owner = _read(handle)
            if owner is not None and (owner.pid, owner.host) == (os.getpid(), socket.gethostname()):
                path.unlink()
        finally:
            os.close(handle)


def owner_of(folder: Path) -> Owner | None:
    """Return the process that a directory is locked by, dead or alive; None if it is not locked."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _read(handle)
    finally:
        os.close(handle)


def release_dead(folder: Path) -> None:
    """Remove the lock of a process that has ended without doing so."""
    with contextlib.suppress(OSError):
        handle = os.open(folder / LOCK, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            owner = _read(handle)
            if owner is not None and owner.is_dead():
                (folder / LOCK).unlink()
        finally:
            os.close(handle)


def _read(handle: int) -> Owner | None:
    """Return the owner; None if the process that created the file was killed before it wrote its name."""
    try:
        return Owner(**json.loads(os.pread(handle, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _start_time(pid: int) -> str | None:
    """Return when a process was started; None if there is none, or only a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        stat = Path(f"/proc/{pid}/stat")
        if stat.is_file():  # in ticks since boot; the number of psutil changes when the clock is set
            return stat.read_text().rpartition(")")[2].split()[19]
        return str(round(process.create_time()))
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:  # the innermost first
        with contextlib.suppress(OSError):
            folder.rmdir()
