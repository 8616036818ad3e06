"""Reads how far a trial has come from the directory of its run, which has one inside it for each stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boxcrew.core.errors import ModelError
from boxcrew.core.stage import Stage
from boxcrew.train.loop.checkpoint import list_checkpoints, read_run
from boxcrew.train.output.metrics import read_rows
from boxcrew.train.run.directory import read_record, stage_names
from boxcrew.train.run.stage_files import COMMIT


def can_pause(stages: Sequence[Stage]) -> bool:
    """Return whether trials with these stages can be compared before their end: without stages, or if the
    first stage has all steps, and closed forms follow.
    """
    return not stages or stages[0].fraction == 1


def is_begun(folder: Path) -> bool:
    """Return whether a run can be continued: it has a checkpoint, or stages, which continue by themselves."""
    return bool(stage_names(folder) or list_checkpoints(folder / "checkpoints"))


def is_finished(folder: Path) -> bool:
    """Return whether a run has been trained to its end."""
    names = stage_names(folder)
    if names and not (folder / names[-1] / COMMIT).is_file():
        return False
    return _summary(folder).get("state") == "finished"


def newest_step(folder: Path) -> int:
    """Return the step of a run's newest complete checkpoint; -1 if it has none."""
    for path in reversed(list_checkpoints(_steps_folder(folder) / "checkpoints")):
        try:
            return read_run(path)[0]
        except ModelError:
            continue
    return -1


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a run between its steps."""
    rows = read_rows(_steps_folder(folder) / "metrics.jsonl")
    return [row for row in rows if "rate" not in row]  # rows of training steps have one


def solved_value(folder: Path, metric: str) -> float | None:
    """Return the result of a run with stages, which is that of the last; None of a run without, or if there
    is none.
    """
    value = _summary(folder).get(metric) if stage_names(folder) else None
    return value if isinstance(value, int | float) else None


def trained_seconds(folder: Path) -> float:
    """Return the seconds that a run has trained, in all its stages."""
    records = [
        read_record(part, "status.json") or _summary(part)
        for part in ([folder / name for name in stage_names(folder)] or [folder])
    ]
    return sum(float(record.get("train_seconds", 0.0)) for record in records)


def _steps_folder(folder: Path) -> Path:
    names = stage_names(folder)
    return folder / names[0] if names else folder


def _summary(folder: Path) -> dict[str, Any]:
    try:
        return read_record(folder, "summary.json")
    except ValueError:  # cut off
        return {}
