"""The rule by which the state of a training follows from what it wrote and from who has its directory."""

from __future__ import annotations

from typing import Literal

TrainingState = Literal["preparing", "running", "finished", "interrupted", "failed", "killed"]
_ENDS: dict[str, TrainingState] = {
    "finished": "finished",
    "interrupted": "interrupted",
    "failed": "failed",
}


def training_state(written: str | None, *, is_held: bool, is_by_holder: bool) -> TrainingState:
    """Return what a training is doing, for `boxcrew status` and for the page of `boxcrew watch`.

    `written` is the state in its files, if any. `is_held` says whether a living process has its directory,
    and `is_by_holder` whether that process wrote the state. If not, it is about to begin or to continue.
    """
    if is_held and not is_by_holder:
        return "preparing"
    if written == "running":
        return "running" if is_held else "killed"
    # A process that lives may have ended its training already, and not yet have left the directory.
    return _ENDS.get(written or "", "preparing" if is_held else "killed")
