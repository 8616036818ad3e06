"""The lease of a run directory: the right to write to it, which ends when it is not renewed.

It cannot be seen whether a process on another host lives. So the holder of a lock touches a file every few
seconds, and another host that has watched the file for longer than that without a change takes the directory
over. It compares no clocks: it counts the seconds that it has waited itself. What is taken over gets a new
generation, and a process that wakes up late finds it and writes nothing (core/fence.py).
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.files import write_json
from boxcrew.core.lock_owner import LEASE, Owner, owner_of

RENEWAL = 5.0  # seconds between two renewals
EXPIRY = 15.0  # seconds without a renewal, as watched by another process, after which a lease has ended
_POLL_SECONDS = 0.1  # seconds between two looks


@dataclass(frozen=True, kw_only=True)
class LeaseRecord:
    """The content of a lease's file. It stays the same; renewals change the file's time."""

    generation: int  # 1, and more if the directory was taken over from processes that may wake up
    word: str  # random: of each lease another


class Lease:
    """A lease that this process holds, and renews in a thread until it is closed."""

    def __init__(self, folder: Path, owner: Owner, *, generation: int) -> None:
        """Begin the lease, from which on one of another generation is over."""
        self._terms = LeaseRecord(generation=generation, word=uuid.uuid4().hex)
        self._folder, self._owner = folder, owner
        write_json(folder / LEASE, asdict(self._terms))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def require_own(self) -> None:
        """Raise an error if another process has taken the directory over."""
        terms = read_terms(self._folder)
        if terms == self._terms:
            return
        owner = owner_of(self._folder)
        if terms is not None or owner not in {None, self._owner}:
            by = f" by process {owner.pid} on {owner.host}" if owner is not None else ""
            raise BoxcrewError(
                f"{self._folder}: taken over{by}, and nothing more is written there",
                advice=f"this process was not heard of for {EXPIRY:g} s: was it stopped, or off the network?",
            )

    def close(self) -> None:
        """Stop renewing the lease. The file is removed, unless it has to show a process that may wake up that
        it is too late.
        """
        self._closed.set()
        self._thread.join(timeout=RENEWAL)
        with suppress(OSError):
            if read_terms(self._folder) == self._terms:
                remove_lease(self._folder)

    def _renew(self) -> None:
        while not self._closed.wait(RENEWAL):
            with suppress(OSError):  # it is tried again; nobody else can write there either
                try:
                    os.utime(self._folder / LEASE)
                    self.require_own()
                except BoxcrewError:  # the next that is written will say so
                    return


def read_terms(folder: Path) -> LeaseRecord | None:
    """Return the lease of a directory; None if it has none, or one that was never finished."""
    try:
        return LeaseRecord(**json.loads((folder / LEASE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def next_generation(folder: Path, owner: Owner | None) -> int:
    """Return the generation number of the next owner of a directory. It grows unless the previous owner,
    `owner`, is dead: a dead process does not wake up.
    """
    terms = read_terms(folder)
    if terms is None:
        return 1 if owner is None or owner.is_dead() else 2
    return terms.generation + (owner is None or not owner.is_dead())


def remove_lease(folder: Path) -> None:
    """Remove the lease of a process that has ended. If that process had taken the directory over from
    another, the file stays.
    """
    terms = read_terms(folder)
    if terms is None or terms.generation == 1:
        (folder / LEASE).unlink(missing_ok=True)


Sign = tuple[LeaseRecord | None, int]
"""A lease and the time of its file: it changes as long as the lease is renewed."""


def sign_of(folder: Path) -> Sign:
    """Return the present sign of life of the process that holds a directory."""
    try:
        with (folder / LEASE).open("rb") as file:  # opened, because network file systems look anew only then
            changed = os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        changed = 0
    return read_terms(folder), changed


def is_renewed(folder: Path) -> bool:
    """Watch a directory for at most EXPIRY seconds; return whether its lease was renewed meanwhile."""
    before, end = sign_of(folder), time.monotonic() + EXPIRY
    while time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        if sign_of(folder) != before:
            return True
    return False
