"""The data of a run: opened, checked, and told about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from boxcrew.core.errors import DataError
from boxcrew.data.checks.problem import ACTIONS, Problem
from boxcrew.data.config import DataConfig
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import OpenOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen

SHOWN_PROBLEMS = 8


def load_task_data(config: RunConfig, *, workers: int, screen: Screen) -> TaskData:
    """Opens the data of a run to learn from it, and says what was found."""
    kind = TASKS.get(config.task.name)
    with screen.progress("looking at the data") as progress:
        opening = OpenOptions(data=config.data, seed=config.seed, workers=workers, progress=progress)
        task_data = kind.open(config.task, opening)
    if config.data.strict:
        _require_clean(config.data, task_data.problems)
    task_data.require_learnable()
    screen.say(f"data: {config.data.path} {task_data.headline()}")
    say_problems(task_data.problems, screen, rest="data_report.json names all")
    return task_data


def settled(task_data: TaskData, config: RunConfig, screen: Screen) -> tuple[TaskData, RunConfig]:
    """Both, with what the settings leave to the data (`auto`) decided."""
    task_data, said = task_data.adapted()
    if said:
        screen.say(said)
    return task_data, config.model_copy(update={"task": task_data.config})


def _require_clean(config: DataConfig, problems: Sequence[Problem]) -> None:
    found = [problem for problem in problems if problem.action != "noted"]
    if found:
        raise DataError(
            f"{config.path}: {len(found)} problems, and data.strict=true; the first: {found[0]}",
            advice=f"boxcrew data {config.path} --json names all of them",
        )


def say_problems(problems: Sequence[Problem], screen: Screen, *, rest: str) -> None:
    """A table of how many there are of each kind, then some by name: the first of every kind before the
    second of any. `rest` says where the others stand.
    """
    if len(problems) > 1:
        counts: Counter[tuple[str, str]] = Counter()
        for problem in problems:
            counts[problem.kind, problem.action] += problem.count
        rows = [
            (kind, *(str(counts[kind, action]) if counts[kind, action] else "" for action in ACTIONS))
            for kind in dict.fromkeys(problem.kind for problem in problems)
        ]
        screen.table("problems in the data", ("kind", *ACTIONS), rows)
    met: Counter[str] = Counter()
    turns = []
    for problem in problems:
        turns.append((met[problem.kind], problem))
        met[problem.kind] += 1
    for _, problem in sorted(turns, key=lambda turn: turn[0])[:SHOWN_PROBLEMS]:
        screen.warn(str(problem))
    more = len(problems) - SHOWN_PROBLEMS
    if more > 0:
        screen.warn(f"and {more} more problems in the data; {rest}")
