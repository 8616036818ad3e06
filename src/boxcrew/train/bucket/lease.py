"""The lease of a run in object storage: the right to write there, which ends when it is not renewed.

Each process that takes the run creates `lease/GENERATION`, which only one can, and renews an object beside
it. As with directories (run/lease.py) another host counts the seconds without a renewal by its own
clock. A process that wakes up late finds a later generation, and writes nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.lock_owner import LEASE, Owner
from boxcrew.core.storage.store import ObjectInfo, StorageError, Store
from boxcrew.train.run.lease import EXPIRY, RENEWAL

_POLL_SECONDS = 1.0  # seconds between two looks at a lease that is watched


@dataclass(frozen=True, kw_only=True)
class LeaseHolder:
    """The process that holds, or held, a run."""

    generation: int
    owner: Owner
    takeovers: int = 0  # how often the run was taken from a process that gave no sign of life


class BucketLease:
    """The lease that this process holds, renewed in a thread until it is closed."""

    def __init__(self, store: Store, holder: LeaseHolder) -> None:
        self._store, self.holder = store, holder
        self._lost = False
        self._renewals = 0
        self._closed = threading.Event()
        self._renew_once()
        self._thread = threading.Thread(target=self._renew, name="bucket lease", daemon=True)
        self._thread.start()

    def require_own(self) -> None:
        """Raise an error if another process is known to have taken the run over; nothing is read for it."""
        if self._lost:
            raise BoxcrewError(
                f"{self._store.url}: taken over by another process, and nothing more is written there",
                advice=f"this process was not heard of for {EXPIRY:g} s: was it stopped, or off the network?",
            )

    def require_now(self) -> None:
        """Look whether another process has taken the run over, and raise an error if so."""
        self._lost = self._lost or self._store.find(_name(self.holder.generation + 1)) is not None
        self.require_own()

    def close(self) -> None:
        """Give the run back, so that the next process need not wait."""
        self._closed.set()
        self._thread.join(timeout=RENEWAL)
        if not self._lost:
            self._store.write(_sign(self.holder.generation), b"closed")

    def _renew(self) -> None:
        while not self._closed.wait(RENEWAL) and not self._lost:
            try:
                self.require_now()
                self._renew_once()
            except StorageError:
                continue  # out of reach: nothing can be written either, and it is tried again
            except BoxcrewError:
                return  # the next that is written will say so

    def _renew_once(self) -> None:
        self._renewals += 1
        self._store.write(_sign(self.holder.generation), str(self._renewals).encode())


def acquire(store: Store, objects: dict[str, ObjectInfo], info: Callable[[str], None]) -> BucketLease:
    """Take the run under the store's URL, of which these objects are there; `UsageError` if a process that
    lives has it, or if it cannot be written to.
    """
    before = read_holder(store, objects)
    takeovers = 0
    if before is not None:
        takeovers = before.takeovers + _require_free(store, before, info)
    generation = 1 if before is None else before.generation + 1
    holder = LeaseHolder(generation=generation, owner=Owner.me(), takeovers=takeovers)
    try:
        if store.create(_name(generation), json.dumps(asdict(holder)).encode()):
            return BucketLease(store, holder)
    except StorageError as error:
        raise UsageError(f"out={error.message}", advice=error.advice) from None
    raise UsageError(f"{store.url}: another process has just taken this run", advice="give another out=")


def read_holder(store: Store, objects: dict[str, ObjectInfo]) -> LeaseHolder | None:
    """Return the process that took the run last; None if no process has."""
    names = [name for name in objects if name.startswith(f"{LEASE}/") and name.rpartition("/")[2].isdigit()]
    if not names:
        return None
    try:
        content = json.loads(store.read(max(names)))
        return LeaseHolder(**{**content, "owner": Owner(**content["owner"])})
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"{store.url / max(names)}: damaged", advice="give another out=") from None


def is_closed(store: Store, holder: LeaseHolder) -> bool:
    """Return whether a process has given the run back."""
    return store.find(_sign(holder.generation)) == b"closed"


def is_renewed(store: Store, holder: LeaseHolder) -> bool:
    """Watch a lease for at most EXPIRY seconds; return whether it was renewed meanwhile."""
    before, end = store.find(_sign(holder.generation)), time.monotonic() + EXPIRY
    while time.monotonic() < end:
        time.sleep(min(_POLL_SECONDS, EXPIRY / 10))
        if store.find(_sign(holder.generation)) not in {before, b"closed"}:
            return True
    return False


def _require_free(store: Store, holder: LeaseHolder, info: Callable[[str], None]) -> bool:
    """Raise `UsageError` if the process that holds a run lives. Return whether it has to be taken from it."""
    owner = holder.owner
    if owner.is_dead() or is_closed(store, holder):
        return False
    if not owner.is_here():
        info(f"lease: held by process {owner.pid} on {owner.host}: waiting for a sign of life from there")
    if owner.is_here() or is_renewed(store, holder):
        raise UsageError(
            f"{store.url}: in use by process {owner.pid} on {owner.host}, since {owner.since}",
            advice="wait for it or end it",
        )
    info(f"lease: process {owner.pid} on {owner.host} gives no sign of life; its run is taken over")
    return True


def _name(generation: int) -> str:
    return f"{LEASE}/{generation:08d}"


def _sign(generation: int) -> str:
    return f"{LEASE}/{generation:08d}.sign"
