"""How far off earlier predictions were, kept beside what is known of the machine: the next plan is better."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_text
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.speed import fingerprint
from boxcrew.plan.observed import ObservedRatio


def recall(machine: Machine, task: str, folder: Path | None = None) -> tuple[ObservedRatio, ...]:
    """Of a task on this machine. `folder` is where they are kept, by default the user's cache. What cannot be
    read is not known.
    """
    found = _read(_file(machine, folder)).get(task, [])
    with suppress(UsageError):
        return tuple(ObservedRatio.of(one) for one in found) if isinstance(found, list) else ()
    return ()


def remember(machine: Machine, task: str, ratio: ObservedRatio, folder: Path | None = None) -> None:
    """In the place of what was known of the same way to compute. What cannot be kept is found out again."""
    file = _file(machine, folder)
    if file is None:
        return
    others = [one for one in recall(machine, task, folder) if _way(one) != _way(ratio)]
    known = _read(file) | {task: [one.tree() for one in (*others, ratio)]}
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(known))


def _way(ratio: ObservedRatio) -> tuple[str, str, str]:
    return ratio.device, ratio.memory_format, ratio.precision


def _file(machine: Machine, folder: Path | None) -> Path | None:
    folder = folder or cache_folder("machine")
    return None if folder is None else folder / f"{fingerprint(machine)}-residuals.json"


def _read(file: Path | None) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
