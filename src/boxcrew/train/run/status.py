"""The status of a run as others see it, also if its process could not write how it ended.

The chief writes `status.json` while it trains. A process that is killed writes nothing: then the launcher, if
there is one, corrects the file, and whoever resumes the run gets a message.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from boxcrew.core.files import append, write_json
from boxcrew.core.lock_owner import owner_of
from boxcrew.core.parent_process import RUN_FOLDERS
from boxcrew.train.run.directory import read_record
from boxcrew.train.run.lock import release_dead

STATUS, SUMMARY = "status.json", "summary.json"


def announce(folder: Path) -> None:
    """Name a directory that this process writes to, for the launcher, if one has started it."""
    if file := os.environ.get(RUN_FOLDERS):
        with suppress(OSError):  # no reason to end a run
            append(Path(file), f"{folder.resolve()}\n")


def record_failure(folders: Sequence[Path], reason: str, *, is_own: bool) -> None:
    """Write to the directories of a run, whose processes have all ended, why it failed, and remove the lock.

    `is_own` says that the chief has failed by an error of its own: what it has written about it stays.
    """
    for folder in folders:
        owner = owner_of(folder)
        if owner is not None and not owner.is_dead():
            continue  # another process continues the run
        for name, key in ((STATUS, "reason"), (SUMMARY, "stopped_because")):
            with suppress(OSError, ValueError):  # there may be none yet, or no room
                record = read_record(folder, name)
                state = record.get("state")
                if state == "running" or (state in {"interrupted", "failed"} and not is_own):
                    write_json(folder / name, {**record, "state": "failed", key: reason})
        release_dead(folder)


def unnoticed_end(folder: Path, stages: Sequence[str] = ()) -> str | None:
    """Return a sentence about a run whose process was killed, so that its status still says `running`; None
    if it ended properly, or if it may be running.
    """
    owner = owner_of(folder)
    if owner is not None and not owner.is_dead():
        return None
    for part in (folder, *(folder / name for name in stages)):
        status = _status(part)
        if status.get("state") == "running":
            return (
                f"the run ended without notice at step {status.get('step')} or later: process "
                f"{status.get('pid')} was killed, or the machine stopped"
            )
    return None


def _status(folder: Path) -> dict[str, Any]:
    try:
        return read_record(folder, STATUS)
    except ValueError:
        return {}
