"""The owner of a run directory: the process that its lock file names."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

LOCK, LEASE = "lock", "lease"  # files: who has the directory, and what is renewed while it is used
LOCK_FILES = frozenset({LOCK, LEASE})


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
            born=start_time(os.getpid()) or "",
            since=time.strftime("%Y-%m-%dT%H:%M:%S"),
        )

    def is_dead(self) -> bool:
        """Return whether the process has surely ended. That of another host is taken to be alive."""
        return self.is_here() and start_time(self.pid) != self.born

    def is_here(self) -> bool:
        """Return whether the process is, or was, one of this host."""
        return self.host == socket.gethostname()


def owner_of(folder: Path) -> Owner | None:
    """Return the process that a directory is locked by, dead or alive; None if it is not locked."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        return read_owner(handle)
    finally:
        os.close(handle)


def read_owner(handle: int) -> Owner | None:
    """Return the owner; None if the process that created the file was killed before it wrote its name."""
    try:
        return Owner(**json.loads(os.pread(handle, 4096, 0)))
    except (ValueError, TypeError):
        return None


def start_time(pid: int) -> str | None:
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
