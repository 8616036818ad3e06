"""What may be set differently when a run goes on, and the record of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from boxcrew.core.config import Tree, read_yaml
from boxcrew.core.errors import UsageError
from boxcrew.plan.plan import Plan
from boxcrew.train.config import LIMITS, RunConfig

FREE = {
    *LIMITS,
    "device",
    "plan",
    "goal",
    "trial",
    "loader",
    "deploy",
    "saver",
    "evaluation",
    "summaries",
    "guard",
}
"""Settings, and groups of them, that say nothing about the steps already done."""

UNFREE = {"evaluation.metric"}  # what `best` means: values of two metrics cannot be compared
PLACES = {"out", "name"}  # not settings of the training

Changes = dict[str, tuple[Any, Any]]
"""Dotted key -> value before and now."""


def changes_since(folder: Path, config: RunConfig) -> Changes:
    """What differs from the settings stored in the run. `UsageError` if any would change the past."""
    stored = RunConfig.of(read_yaml(folder / "config.yaml"))
    before, now = _flat(stored.tree()), _flat(config.tree())
    changes = {
        key: (before.get(key), now.get(key))
        for key in sorted({*before, *now} - PLACES)
        if before.get(key) != now.get(key)
    }
    for key, (old, new) in changes.items():
        if key in UNFREE or key.partition(".")[0] not in FREE:
            raise UsageError(
                f"{key}={new}: the run in {folder} was begun with {old}: changing it would change the past",
                advice="begin a new run with another out=, and init=resume init.run=… (all of its state) "
                "or init=finetune init.checkpoint=… (its weights)",
            )
    return changes


def as_settled(folder: Path, config: RunConfig) -> RunConfig:
    """The settings, with what they leave to the data (`auto`) as it was settled when the run began."""
    stored = RunConfig.of(read_yaml(folder / "config.yaml")).task.tree()
    task = type(config.task).of(_with_settled(config.task.tree(), stored))
    return config.model_copy(update={"task": task})


def _with_settled(tree: Tree, stored: Tree) -> Tree:
    found: Tree = {}
    for name, value in tree.items():
        before = stored.get(name)
        if isinstance(value, dict):
            found[name] = _with_settled(value, before if isinstance(before, dict) else {})
        else:
            found[name] = before if value == "auto" and name in stored else value
    return found


def require_same_batch(folder: Path, plan: Plan) -> None:
    """A plan given by hand may not change what a step is."""
    batch = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["batch"]
    if batch != plan.batch:
        raise UsageError(
            f"plan: batch {plan.batch}: the run in {folder} was begun with {batch}",
            advice="give a plan with the same batch, or begin a new run with another out=",
        )


def sentences(changes: Changes, config: RunConfig) -> list[str]:
    """For people."""
    if not changes:
        return []
    lines = ["changed: " + ", ".join(f"{key} {old} -> {new}" for key, (old, new) in changes.items())]
    shares: list[str] = [name for name in ("cosine", "polynomial", "step") if name == config.schedule.name]
    shares += ["warmup"] if config.schedule.warmup > 0 else []
    shares += ["unfreeze"] if config.unfreeze else []
    if shares and changes.keys() & set(LIMITS):
        lines.append(
            f"the length of the run has changed, and {', '.join(shares)} are shares of it: the rate goes on "
            "from where it would be in a run of the new length"
        )
    return lines


def record(folder: Path, changes: Changes, *, step: int) -> None:
    """A line of `changes.jsonl`."""
    if not changes:
        return
    line = {
        "step": step,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "changes": {key: {"from": old, "to": new} for key, (old, new) in changes.items()},
    }
    with (folder / "changes.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _flat(tree: Tree, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
