"""The state of a run, from its status, its summary and its lock; also if its process was killed."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from boxcrew.core.lock_owner import LOCK, owner_of
from boxcrew.core.training_state import TrainingState, training_state
from boxcrew.serve.watch.reading import JsonRecord

StateName = Literal["waiting", "gone"] | TrainingState
_WITH_REASON = {"finished", "interrupted", "failed"}
STATUS, SUMMARY = "status.json", "summary.json"


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The lock of a run directory, if it has one."""

    is_held: bool = False  # by a process that has not surely ended
    host: str = ""
    seconds: float = 0.0  # since the epoch, when it was taken

    @classmethod
    def on(cls, folder: Path) -> Lock:
        path = folder / LOCK
        try:
            facts = path.lstat()
            if not stat.S_ISREG(facts.st_mode):
                return cls()
            owner = owner_of(folder)
            if owner is None:
                return cls()
            return cls(is_held=not owner.is_dead(), host=str(owner.host), seconds=facts.st_mtime)
        except (OSError, ValueError, TypeError, OverflowError, psutil.Error):  # damaged, or not ours to ask
            return cls()


@dataclass(frozen=True, kw_only=True)
class State:
    """The thing that a run is doing, and why it ended if it has."""

    name: StateName
    reason: str | None = None


def state_of(status: JsonRecord, summary: JsonRecord, lock: Lock, *, status_seconds: float | None) -> State:
    """Return the state of a run without stages, or of a stage.

    `status_seconds` is when the status was written, since the epoch; None if it was not. A process that has
    taken the lock since then is about to continue the run.
    """
    written = status.text("state") or summary.text("state")
    name = training_state(
        written,
        is_held=lock.is_held,
        is_by_holder=status_seconds is not None and lock.seconds <= status_seconds,
    )
    reason = status.text("reason") or summary.text("stopped_because")
    return State(name=name, reason=reason if name in _WITH_REASON else None)
