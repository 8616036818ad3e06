"""The job that a launcher or a scheduler starts again: its run continues where it was, also without `out=`.

torchrun restarts all processes of a job when one has failed or joins, and SLURM requeues it. What the starts
have in common is a name; the run's directory keeps it in `job.json`, with a digest of the settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.files import write_json
from boxcrew.core.lock_owner import start_time
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.train.config import RunConfig
from boxcrew.train.run.directory import JOB, candidate_folders, is_run, read_record

_UNNAMED = "none"  # torchrun's word for a job without --rdzv-id


@dataclass(frozen=True, kw_only=True)
class LauncherJob:
    """The name that all starts of a job have in common, and its settings."""

    name: str
    settings: str  # their digest: one job may train several runs
    may_be_restarted: bool  # whether this may be another start of the job than the first

    @classmethod
    def of(cls, config: RunConfig, environment: Mapping[str, str]) -> LauncherJob | None:
        """Return the job that this process is a part of, if the environment variables name one."""
        settings = hashlib.sha256(json.dumps(config.tree(), sort_keys=True).encode()).hexdigest()
        run_id = environment.get("TORCHELASTIC_RUN_ID", "")
        if run_id and LAUNCHER in environment:  # our own launcher: it numbers its starts
            name, _, number = run_id.partition(".")
            return cls(name=f"launcher {name}", settings=settings, may_be_restarted=number != "0")
        if run_id:
            name = f"torchrun {run_id}{_agent() if run_id == _UNNAMED else ''}"
            # Its count of restarts is one of each host: a process that is started again may see 0.
            return cls(name=name, settings=settings, may_be_restarted=True)
        if "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" in environment:
            name = f"slurm {environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}"
            is_requeued = environment.get("SLURM_RESTART_COUNT", "0") != "0"
            return cls(name=name, settings=settings, may_be_restarted=is_requeued)
        return None

    def record(self) -> dict[str, str]:
        return {"name": self.name, "settings": self.settings}

    def folder(self, default: Path) -> Path | None:
        """Return the directory of runs/<default>, <default>-2, … in which it has begun; None if in none."""
        if not self.may_be_restarted:
            return None
        for folder in candidate_folders(default):
            if not folder.exists():
                return None
            if _recorded(folder) == self.record():
                return folder
        raise AssertionError  # names do not end


def _agent() -> str:
    """Return which process on which host has started this one."""
    parent = os.getppid()
    return f" by process {parent}, started at {start_time(parent)}, on {socket.gethostname()}"


@contextmanager
def recorded(job: LauncherJob | None, folder: Path) -> Iterator[None]:
    """Keep the job in its run's directory, unless it fails before it has begun there."""
    if job is None:
        yield
        return
    write_json(folder / JOB, job.record())
    try:
        yield
    finally:
        if not is_run(folder):
            (folder / JOB).unlink(missing_ok=True)


def _recorded(folder: Path) -> dict[str, str]:
    try:
        return read_record(folder, JOB)
    except (OSError, ValueError):
        return {}
