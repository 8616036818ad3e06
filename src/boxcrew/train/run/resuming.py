"""Resuming a run: the checkpoint to continue from, the settings that may change, and what must not."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from boxcrew.core.config import Tree
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.files import append
from boxcrew.deploy.optimizer_state import check_optimizer_state
from boxcrew.plan.plan import Plan
from boxcrew.train.bucket.records import everything, local_run
from boxcrew.train.config import LIMITS, RunConfig
from boxcrew.train.init import Resume
from boxcrew.train.loop.checkpoint import Checkpoint, newest_checkpoint
from boxcrew.train.loop.hooks.evaluation import EvaluationState, forget_best
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import read_record, require_run
from boxcrew.train.run.record import RunRecord
from boxcrew.train.run.setup import RunSetup
from boxcrew.train.run.stored_settings import Changes


@dataclass(frozen=True, kw_only=True, eq=False)
class Resumed:
    """The run to continue: this run itself (`is_own`), or the one that `init=resume` names."""

    folder: Path
    checkpoint: Checkpoint
    record: RunRecord
    is_own: bool

    @classmethod
    def of(cls, folder: Path, checkpoint: Checkpoint, *, is_own: bool) -> Self:
        return cls(folder=folder, checkpoint=checkpoint, record=RunRecord.of(checkpoint), is_own=is_own)


def find_resumed(folder: Path, config: RunConfig, screen: Screen) -> Resumed | None:
    """Return what a run in `folder` continues from, or None if it is new."""
    checkpoint, problems = newest_checkpoint(folder / "checkpoints")
    if checkpoint is not None:
        for problem in problems:
            screen.warn(f"{problem}; an older checkpoint is used")
        return Resumed.of(folder, checkpoint, is_own=True)
    if problems:
        raise ModelError(
            f"{folder}: none of its checkpoints can be used: {problems[0]}",
            advice="start a new run with another out=; its weights, if any, can be the start: init=finetune",
        )
    if any((folder / "weights").glob("*.safetensors")):
        raise UsageError(
            f"out={folder}: has weights, but no checkpoint to continue from",
            advice="give a directory that does not exist yet",
        )
    return _other_run(config.init) if isinstance(config.init, Resume) else None


def _other_run(init: Resume) -> Resumed:
    folder = require_run(local_run(init.run, everything))
    checkpoint, problems = newest_checkpoint(folder / "checkpoints")
    if checkpoint is None:
        reason = problems[0] if problems else "it has no finished checkpoint"
        raise ModelError(f"init.run={init.run}: cannot be resumed: {reason}")
    # The best weights so far are in the other directory.
    return Resumed.of(folder, forget_best(checkpoint), is_own=False)


def require_resumable(setup: RunSetup, resumed: Resumed, plan: Plan) -> None:
    """Raise an error, before anything is written, if a run cannot continue with these settings and data."""
    _require_same_model(setup, resumed)
    if resumed.is_own:
        require_same_batch(resumed, plan)


def _require_same_model(setup: RunSetup, resumed: Resumed) -> None:
    """Raise `ModelError` if the checkpoint is of another network, other classes or another optimizer."""
    advice = "give the settings and the data that the run began with, or another out="
    checkpoint, before = resumed.checkpoint, resumed.record.data
    try:
        setup.task.load_state_dict(checkpoint.tensors_by_owner()["task"])
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{setup.folder}: its checkpoint does not fit: {reason}", advice=advice) from None
    classes, now = before["classes"], list(setup.task_data.facts.classes)
    if resumed.is_own and classes != now:
        raise ModelError(
            f"{setup.folder}: was started with the classes {', '.join(classes)}; "
            f"the data has {', '.join(now)}",
            advice=advice,
        )
    if resumed.is_own and before["digest"] != setup.task_data.digest():
        setup.screen.warn(
            "the data has changed since this run began: it continues with the data as it is now, and will "
            "not be the same as a run without a stop"
        )
    check_optimizer_state(optimizer_of(setup.task, setup.config.optim), checkpoint.plain_optimizer_state)


def refuse_finished(resumed: Resumed, config: RunConfig) -> None:
    """Raise `UsageError`, before the data is read, if a run has ended. One that was killed before it wrote
    its summary has not.
    """
    checkpoint, record = resumed.checkpoint, resumed.record
    try:
        summary = read_record(resumed.folder, "summary.json")
    except ValueError:
        return  # `warn_of_damage` has said so
    if (summary.get("state"), summary.get("steps")) != ("finished", checkpoint.step):
        return
    limits = config.limits(num_samples=record.data["num_train"], batch=record.plan.batch)
    patience = config.evaluation.patience
    if limits.progress(checkpoint.step, checkpoint.elapsed).fraction >= 1:
        advice = "to train longer give more epochs=, steps= or time="
    elif patience and EvaluationState.of(checkpoint).without_gain >= patience:
        advice = "to train longer give a higher evaluation.patience="
    else:
        return
    raise UsageError(f"run={resumed.folder}: already finished at step {checkpoint.step}", advice=advice)


def with_resolved_auto(config: RunConfig, task_before: Tree) -> RunConfig:
    """Return the settings with each `auto` that depends on the data as in the settings of the task before."""
    task = type(config.task).of(_fill_auto(config.task.tree(), task_before))
    return config.model_copy(update={"task": task})


def _fill_auto(tree: Tree, stored: Tree) -> Tree:
    filled: Tree = {}
    for name, value in tree.items():
        before = stored.get(name)
        if isinstance(value, dict):
            filled[name] = _fill_auto(value, before if isinstance(before, dict) else {})
        else:
            filled[name] = before if value == "auto" and name in stored else value
    return filled


def require_same_batch(resumed: Resumed, plan: Plan) -> None:
    """Raise `UsageError` if the plan has another batch than the resumed run: steps would differ."""
    batch = resumed.record.plan.batch
    if batch != plan.batch:
        raise UsageError(
            f"plan: batch {plan.batch}: the run in {resumed.folder} was started with {batch}",
            advice="give a plan with the same batch, or start a new run with another out=",
        )


def describe_changes(changes: Changes, config: RunConfig) -> list[str]:
    """Return lines about changed settings and what they do to the schedule."""
    if not changes:
        return []
    lines = ["changed: " + ", ".join(f"{key} {old} -> {new}" for key, (old, new) in changes.items())]
    relative: list[str] = [name for name in ("cosine", "polynomial", "step") if name == config.schedule.name]
    relative += ["warmup"] if config.schedule.warmup > 0 else []
    relative += ["unfreeze"] if config.unfreeze else []
    if relative and changes.keys() & set(LIMITS):
        lines.append(
            f"the length of the run has changed, and {', '.join(relative)} are relative to it: the learning "
            "rate continues from where it would be in a run of the new length"
        )
    return lines


def record_changes(folder: Path, changes: Changes, *, step: int) -> None:
    """Append the changes, if any, to `changes.jsonl`, unless they are its last line: a run that was killed
    before its next checkpoint continues from the same step again.
    """
    file = folder / "changes.jsonl"
    values = {key: {"from": old, "to": new} for key, (old, new) in changes.items()}
    if not changes or _last_change(file) == (step, values):
        return
    line = {"step": step, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), "changes": values}
    append(file, json.dumps(line) + "\n")


def _last_change(file: Path) -> tuple[int, Mapping[str, Any]] | None:
    try:
        last = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
        return last["step"], last["changes"]
    except (OSError, ValueError, LookupError, TypeError):
        return None  # no line, or one that was cut off
