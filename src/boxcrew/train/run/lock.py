"""One run at a time in a directory: a file there names the process that works in it."""

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
    pid: int
    host: str
    born: str  # when the process was started, on a clock that nobody sets: numbers of processes come again
    since: str  # for people

    @classmethod
    def me(cls) -> Owner:
        return cls(
            pid=os.getpid(),
            host=socket.gethostname(),
            born=_born(os.getpid()) or "",
            since=time.strftime("%Y-%m-%dT%H:%M:%S"),
        )

    def is_dead(self) -> bool:
        """For sure: of a process of another host one cannot know."""
        return self.host == socket.gethostname() and _born(self.pid) != self.born


@contextlib.contextmanager
def locked(folder: Path, say: Callable[[str], None], *, new: bool = False) -> Iterator[None]:
    """Makes the directory if need be, and holds it. `UsageError` if another run holds it; with `new`
    `FileExistsError` if it is there already. What was made is taken away again if nothing else has come into
    it.
    """
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=not new)
        _take(folder / LOCK, say)
    except OSError as error:
        # Of a parent that is a file or a link to nowhere the system says the same.
        if new and isinstance(error, FileExistsError) and os.path.lexists(folder):
            raise
        _remove_empty(made)
        raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
    try:
        yield
    finally:
        _release(folder / LOCK)
        _remove_empty(made)


def _take(path: Path, say: Callable[[str], None]) -> None:
    me = Owner.me()
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Held for a moment only: it lets one process at a time read who the owner is and become it.
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_at(handle, path):
                continue  # its owner has just left, and taken the file away
            owner = _read(handle)
            if owner is not None and not owner.is_dead():
                raise UsageError(
                    f"{path.parent}: in use by process {owner.pid} on {owner.host}, since {owner.since}",
                    advice=f"wait for it or end it; if it is surely gone, remove {path}",
                )
            if owner is not None:
                say(f"lock: process {owner.pid} on {owner.host} is gone; its lock is taken over")
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(me)).encode(), 0)
            return
        finally:
            os.close(handle)


def _release(path: Path) -> None:
    """Takes the file away, unless somebody else has made it theirs."""
    with contextlib.suppress(OSError):  # the directory may be gone, or no longer writable
        handle = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            owner = _read(handle)
            if owner is not None and (owner.pid, owner.host) == (os.getpid(), socket.gethostname()):
                path.unlink()
        finally:
            os.close(handle)


def _read(handle: int) -> Owner | None:
    """None if the process that made the file was ended before it had written its name."""
    try:
        return Owner(**json.loads(os.pread(handle, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _born(pid: int) -> str | None:
    """None if there is no such process, or only its remains."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        stat = Path(f"/proc/{pid}/stat")
        if stat.is_file():  # in ticks since the machine was started; psutil's own number moves with the clock
            return stat.read_text().rpartition(")")[2].split()[19]
        return str(round(process.create_time()))
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:  # the innermost first
        with contextlib.suppress(OSError):
            folder.rmdir()
