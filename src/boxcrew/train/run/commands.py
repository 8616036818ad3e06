"""The entry points: train a run, or resume it."""

from __future__ import annotations

import os
from pathlib import Path

from boxcrew.core.config import Tree
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import locked_folder, require_run, run_of_stage, stage_names
from boxcrew.train.run.job import LauncherJob, recorded
from boxcrew.train.run.prepare import prepare
from boxcrew.train.run.stages import run_stages
from boxcrew.train.run.status import announce, unnoticed_end
from boxcrew.train.run.stored_settings import resumed_settings


def train(
    config: RunConfig, screen: Screen, group: ReplicaGroup | None = None, *, pause_at: int | None = None
) -> Outcome:
    """Train a new run, or continue from the newest checkpoint in its directory. This process is the chief of
    `group`, or alone. The run, or its first stage if it has any, pauses after step `pause_at`.
    """
    config = config.with_absolute_path()
    default = Path(config.task.folder) / (config.name or "train")
    out = config.local_out
    if out is not None and run_of_stage(out) is not None:
        raise UsageError(
            f"out={out}: a stage of the run in {out.parent}",
            advice=f"boxcrew resume run={out.parent}, or another out=",
        )
    job = LauncherJob.of(config, os.environ)
    begun = job.folder(default) if job is not None and out is None else None
    if begun is not None:
        screen.info(f"{begun}: this job started here before, and continues")
    with locked_folder(out or begun, default, screen.info) as folder, recorded(job, folder):
        announce(folder)
        if config.task.stages():
            return run_stages(config, folder, screen, group or ReplicaGroup(), pause_at=pause_at)
        if stage_names(folder):
            raise UsageError(
                f"out={folder}: a run with stages", advice="give a directory that does not exist yet"
            )
        return prepare(config, folder, screen, group or ReplicaGroup(), pause_at=pause_at).run()


def resume(folder: Path, changes: Tree, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Continue a run that was stopped, or that is to be longer, with some settings changed."""
    folder = run_of_stage(folder) or require_run(folder)
    if not stage_names(folder) and not list_checkpoints(folder / "checkpoints"):
        raise ModelError(
            f"run={folder}: cannot be resumed: it has no finished checkpoint",
            advice="start it again with boxcrew train",
        )
    if (notice := unnoticed_end(folder, stage_names(folder))) is not None:
        screen.warn(notice)
    return train(resumed_settings(folder, changes, screen.warn), screen, group)
