"""The trainings of a comparison, each in a directory of its own; finished ones are not repeated."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxcrew.api import resume_run, train_run
from boxcrew.compare.settings import CompareConfig
from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.core.files import write_json
from boxcrew.core.units import format_duration
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import explain
from boxcrew.train.run.directory import read_record, stage_names
from boxcrew.train.run.lock import locked

SETTINGS = "comparison.json"


def open_comparison(config: CompareConfig, folder: Path) -> None:
    """Store the settings of a comparison, or check that an earlier one in the folder had the same."""
    tree = {**config.tree(), "out": None, "name": ""}
    if not (folder / SETTINGS).is_file():
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(
                f"out={folder}: not empty, and not a comparison",
                advice="give a directory that does not exist yet",
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / SETTINGS, tree)
        return
    before, now = _flat(read_record(folder, SETTINGS)), _flat(tree)
    for key in {**before, **now}:
        if before.get(key) != now.get(key):
            raise UsageError(
                f"{key}={_words(now.get(key))}: {folder} was started with {_words(before.get(key))}",
                advice=f"boxcrew resume run={folder} continues it; give another out= for a new one",
            )


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a comparison and those of its runs side by side."""
    own = {key: value for key, value in tree.items() if key != "settings"}
    return {**own, **tree.get("settings", {})}


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def stored_comparison(folder: Path) -> CompareConfig:
    """Return the settings that a comparison was started with."""
    return CompareConfig.of({**read_record(folder, SETTINGS), "out": folder, "name": "compare"})


def unfinished(configs: Mapping[str, RunConfig], folder: Path) -> dict[str, RunConfig]:
    """Return the settings of the runs that are still to be trained, or to be continued."""
    return {name: config for name, config in configs.items() if not _is_finished(folder / name)}


def _is_finished(run: Path) -> bool:
    return bool(read_record(run, "summary.json").get("state") == "finished")


def print_budget(configs: Mapping[str, RunConfig], screen: Screen) -> None:
    """Print how long each training may take, as the planner predicts it."""
    rows, total = [], 0.0
    for name, config in configs.items():
        screen.info(f"planning {name}")
        explanation = explain(config, Screen())
        seconds = explanation.time.likely
        stages = [
            f"{stage} {format_duration(time.likely)}"
            for stage, time in explanation.times.items()
            if time is not None and len(explanation.times) > 1
        ]
        total += seconds
        rows.append((name, _limit(config), format_duration(seconds), ", ".join(stages) or "-"))
    if not rows:
        return
    rows.append(("all", "", format_duration(total), ""))
    columns = ("detector", "budget", "expected", "stages")
    screen.table("budget, without evaluations", columns, rows, numbers=False)


def _limit(config: RunConfig) -> str:
    limits = {"time": config.time, "epochs": config.epochs, "steps": config.steps}
    texts = [
        format_duration(value) if name == "time" else f"{value:g} {name}"
        for name, value in limits.items()
        if value is not None
    ]
    return " or ".join(texts)


@dataclass(frozen=True, kw_only=True)
class TrainingsOutcome:
    """The end of the trainings of a comparison."""

    interrupted: bool
    failed: Mapping[str, str]  # the reason, by the name of the run


def train_all(configs: Mapping[str, RunConfig], folder: Path, screen: Screen) -> TrainingsOutcome:
    """Train every run that is not finished. One that fails does not keep the others from being trained."""
    failed: dict[str, str] = {}
    for number, (name, config) in enumerate(configs.items(), start=1):
        run = folder / name
        if _is_finished(run):
            screen.info(f"{name}: finished already")
            continue
        screen.info(f"detector {number} of {len(configs)}: {name}")
        try:
            interrupted = _train(config, run, screen).interrupted
        except BoxcrewError as error:
            failed[name] = error.message
            screen.warn(f"{name} failed: {error.message}")
            continue
        if interrupted:
            return TrainingsOutcome(interrupted=True, failed=failed)
    return TrainingsOutcome(interrupted=False, failed=failed)


def _train(config: RunConfig, run: Path, screen: Screen) -> Outcome:
    """Train a run from where it was. What a process left that was killed before its first checkpoint is
    removed: it is the comparison's own.
    """
    if list_checkpoints(run / "checkpoints") or (run.is_dir() and stage_names(run)):
        return resume_run(run, {}, screen)
    if run.is_dir():
        with locked(run, screen.info):  # no other process is at it
            pass
        shutil.rmtree(run)
    return train_run(config.model_copy(update={"out": run}), screen)
