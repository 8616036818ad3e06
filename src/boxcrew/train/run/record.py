"""The record of a run: what it was made with, as each of its checkpoints carries it.

`config.yaml`, `plan.json` and the other files of a run directory are for people and programs to read. They
may be edited, cut or lost: what a resumed run depends on is taken from the checkpoint, which has a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from boxcrew.core.config import Tree
from boxcrew.core.errors import ModelError
from boxcrew.core.stage import stage_folders
from boxcrew.hardware.machine import Machine
from boxcrew.plan.plan import Plan
from boxcrew.tasks.data import TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint, list_checkpoints, read_run
from boxcrew.train.loop.hooks.evaluation import EVALUATION

FILES = ("plan.json", "hardware.json", "data_report.json", "placement.json", "init.json")
"""The files that a resumed run writes again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecord:
    """The settings, plan, machine and data that a run was made with. `config` is complete: each `auto` that
    data decides has its value.
    """

    config: RunConfig
    plan: Plan
    machine: Machine
    data: Mapping[str, Any]  # as `data_facts` returns them
    init: Mapping[str, Any]  # how the parameters were initialized
    advice: Sequence[Mapping[str, Any]]  # given before the first step

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """Return the record that a checkpoint carries."""
        run = checkpoint.run
        return cls(
            config=RunConfig.of(run["config"]),
            plan=Plan.of(run["plan"]),
            machine=Machine.of(run["machine"]),
            data=run["data"],
            init=run["init"],
            advice=run["advice"],
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "config": self.config.tree(),
            "plan": self.plan.tree(),
            "machine": self.machine.tree(),
            "data": dict(self.data),
            "init": dict(self.init),
            "advice": list(self.advice),
        }


def data_facts(task_data: TaskData) -> dict[str, Any]:
    """Return what a resumed run compares its data with, and what tells the length of the run without it."""
    return {
        "digest": task_data.digest(),
        "classes": list(task_data.facts.classes),
        "num_train": task_data.num_train,
    }


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """The settings and the plan of a run as JSON values, and the file that they come from."""

    config: Tree
    plan: Tree
    source: Path


def newest_stored(folder: Path) -> StoredRun | None:
    """Return what the newest checkpoint in a run directory says; None if there is none that can be read."""
    for path in reversed(list_checkpoints(folder / "checkpoints")):
        try:
            _, run = read_run(path)
        except ModelError:
            continue  # reported when the run continues from another
        return StoredRun(config=dict(run["config"]), plan=dict(run["plan"]), source=path)
    return None


def plan_before(folder: Path, config: RunConfig) -> Plan | None:
    """Return the plan that a run was made with, of its first stage that trains if it has stages; None if it
    has no checkpoint.
    """
    stages = config.task.stages()
    named = zip(stage_folders(stages), stages, strict=True)
    descents = [name for name, stage in named if stage.kind == "descend"]
    stored = newest_stored(folder.joinpath(*descents[:1]))
    return None if stored is None else Plan.of(stored.plan)


def warn_of_damage(folder: Path, warn: Callable[[str], None]) -> None:
    """Warn of each file of a run to be resumed that is missing or damaged, and say what becomes of it."""
    for name in FILES:
        if not _is_json(folder / name):
            warn(f"{folder / name}: missing or damaged; it is written again from the checkpoint")
    if is_damaged(folder / "summary.json"):
        warn(f"{folder / 'summary.json'}: damaged; it is written again at the end of the run")
    if is_damaged(folder / EVALUATION):
        warn(
            f"{folder / EVALUATION}: damaged: the scores of the best weights are lost; "
            f"boxcrew val run={folder} measures them again"
        )


def is_damaged(path: Path) -> bool:
    """Return whether a JSON file exists, but cannot be read."""
    return path.exists() and not _is_json(path)


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False
