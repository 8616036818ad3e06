"""The data of a run: opening and checking it, and reporting its problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from boxcrew.core.errors import DataError
from boxcrew.core.units import counted
from boxcrew.data.checks.problem import ACTIONS, Problem
from boxcrew.data.config import DataConfig
from boxcrew.hardware.probe import usable_cores
from boxcrew.tasks.base import TASKS, Task
from boxcrew.tasks.data import OpenOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen

SHOWN_PROBLEMS = 8


def load_task_data(config: RunConfig, *, workers: int, screen: Screen) -> TaskData:
    """Open the data of a run for training, and report what is in it."""
    kind = TASKS.get(config.task.name)
    name = config.task.default_data
    if config.data.format == "auto" and Path(config.data.path) == Path.cwd() / name:
        screen.warn(
            f"data={name}: the directory of that name here is used, not the embedded set, which "
            f"data.format={name} chooses"
        )
    with screen.progress("checking the data") as progress:
        opening = OpenOptions(data=config.data, seed=config.seed, workers=workers, progress=progress)
        task_data = kind.open(config.task, opening)
    if config.data.strict:
        _require_clean(config.data, task_data.problems)
    task_data.require_learnable()
    screen.info(f"data: {config.data.path} {task_data.headline()}")
    print_problems(task_data.problems, screen, rest="data_report.json names all")
    return task_data


def open_task(config: RunConfig, screen: Screen) -> tuple[RunConfig, TaskData, Task]:
    """Open the data, resolve the `auto` settings that depend on it, and build the task from the seed."""
    task_data = load_task_data(config, workers=max(1, int(usable_cores())), screen=screen)
    task_data, summary = task_data.adapted()
    if summary:
        screen.info(summary)
    torch.manual_seed(config.seed)
    return config.model_copy(update={"task": task_data.config}), task_data, task_data.task()


def _require_clean(config: DataConfig, problems: Sequence[Problem]) -> None:
    serious = [problem for problem in problems if problem.action != "noted"]
    if serious:
        raise DataError(
            f"{config.path}: {len(serious)} problems, and data.strict=true; the first: {serious[0]}",
            advice=f"boxcrew data {config.path} --json lists all of them",
        )


def print_problems(problems: Sequence[Problem], screen: Screen, *, rest: str) -> None:
    """Print a table of the number of problems of each kind, then some of them: the first of every kind before
    the second of any. `rest` says where all are listed. Causes come before everything else.
    """
    for cause in (problem for problem in problems if problem.kind == "cause"):
        screen.warn(str(cause))
    problems = [problem for problem in problems if problem.kind != "cause"]
    if len(problems) > 1:
        counts: Counter[tuple[str, str]] = Counter()
        for problem in problems:
            counts[problem.kind, problem.action] += problem.count
        rows = [
            (kind, *(str(counts[kind, action]) if counts[kind, action] else "" for action in ACTIONS))
            for kind in dict.fromkeys(problem.kind for problem in problems)
        ]
        screen.table("problems in the data", ("kind", *ACTIONS), rows)
    seen: Counter[str] = Counter()
    ranked = []
    for problem in problems:
        ranked.append((seen[problem.kind], problem))
        seen[problem.kind] += 1
    for _, problem in sorted(ranked, key=lambda pair: pair[0])[:SHOWN_PROBLEMS]:
        screen.warn(str(problem))
    more = len(problems) - SHOWN_PROBLEMS
    if more > 0:
        screen.warn(f"and {counted(more, 'more problem')} in the data; {rest}")
