"""The state of a run, from its files: how far it is, who trains it, and what a killed process has lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boxcrew.core.lock_owner import Owner, owner_of
from boxcrew.core.storage.address import Location
from boxcrew.core.training_state import TrainingState, training_state
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.run.directory import read_record, stage_names
from boxcrew.train.run.lease import is_renewed, read_terms
from boxcrew.train.run.status import STATUS, SUMMARY


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The state of a run as another process sees it."""

    state: TrainingState  # killed: it ended without notice
    reason: str | None
    stage: str | None  # the last that has begun, of a run with stages
    step: int | None  # the last one that was reported
    fraction: float | None  # of the run, or of the stage
    checkpoint: int | None  # step of the newest one
    processes: tuple[dict[str, Any], ...]  # name, host and pid of each, the chief's first
    since: str | None  # when the process that holds the lock began, by its own clock
    takeovers: int  # how often another host took over because the lock's owner gave no sign of life

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self, folder: Location) -> list[str]:
        """Return the state as lines for people."""
        since = f" since {self.since}" if self.since and self.state in {"preparing", "running"} else ""
        reason = f": {self.reason}" if self.reason else ""
        lines = [f"{folder}: {self.state}{since}{reason}"]
        if self.stage is not None:
            lines.append(f"stage: {self.stage}")
        if self.step is not None and self.fraction is not None:
            lines.append(f"step {self.step}, {self.fraction:.0%} done")
        lines += [f"{each['name']}: process {each['pid']} on {each['host']}" for each in self.processes]
        if self.takeovers:
            lines.append(f"taken over from a host that gave no sign of life: {self.takeovers} times")
        if self.checkpoint is not None:
            lines.append(f"last checkpoint: step {self.checkpoint}")
        if self.state == "killed":
            again = f"the steps after {self.checkpoint or 0} are computed again"
            lines.append(f"lost: {again}; to continue: boxcrew resume run={folder}")
        return lines


def run_state(folder: Path, info: Callable[[str], None]) -> RunState:
    """Return the state of a run. If another host has its lock, this takes seconds: its lease is watched."""
    owner = owner_of(folder)
    is_held = owner is not None and _is_alive(owner, folder, info)
    terms = read_terms(folder)
    takeovers = terms.generation - 1 if terms is not None else 0
    return state_of(folder, owner=owner, is_held=is_held, takeovers=takeovers)


def state_of(folder: Path, *, owner: Owner | None, is_held: bool, takeovers: int) -> RunState:
    """Return the state of a run from its files, and from who has it: `is_held` says whether that lives."""
    stage = next((name for name in reversed(stage_names(folder)) if (folder / name).is_dir()), None)
    part = folder / stage if stage is not None else folder
    status = _record(part, STATUS)
    written = str(status.get("state") or _record(folder, SUMMARY).get("state") or "")
    is_own = owner is not None and status.get("pid") == owner.pid
    checkpoints = list_checkpoints(part / "checkpoints")
    return RunState(
        # A stage that has ended says nothing about the run, whose next stage its process prepares.
        state=training_state(
            written, is_held=is_held, is_by_holder=is_own and (stage is None or written == "running")
        ),
        reason=status.get("reason"),
        stage=stage,
        step=status.get("step"),
        fraction=status.get("fraction"),
        checkpoint=int(checkpoints[-1].name) if checkpoints else None,
        processes=tuple(status.get("processes", ())),
        since=owner.since if owner is not None else None,
        takeovers=takeovers,
    )


def _is_alive(owner: Owner, folder: Path, info: Callable[[str], None]) -> bool:
    if owner.is_here():
        return not owner.is_dead()
    info(f"process {owner.pid} on {owner.host} has the directory: waiting for a sign of life from there")
    return is_renewed(folder)


def _record(folder: Path, name: str) -> dict[str, Any]:
    try:
        return read_record(folder, name)
    except (OSError, ValueError):
        return {}
