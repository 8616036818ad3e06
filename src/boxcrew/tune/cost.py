"""The cost of a step with other settings: larger networks or inputs get equal seconds, not equal steps."""

from __future__ import annotations

from collections.abc import Collection

from boxcrew.core.errors import BoxcrewError
from boxcrew.hardware.machine import Machine
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.planner import Planner
from boxcrew.train.planning.workload import measure_workload
from boxcrew.train.run.data import open_task

_SAME_COST = {"optim", "schedule", "init", "augment", "transforms", "net.dropout", "task.smoothing"}
"""Settings, and groups of them, that change what is learned, but hardly what a step costs."""
_MOST = 8.0  # times shorter or longer than the recipe's


def changes_cost(keys: Collection[str]) -> bool:
    """Return whether one of these settings can change what a step costs."""
    return any(key not in _SAME_COST and key.partition(".")[0] not in _SAME_COST for key in keys)


def relative_cost(config: RunConfig, base_cost: float, machine: Machine) -> float:
    """Return what a step of `config` is expected to cost, in steps of the recipe, which cost `base_cost`."""
    try:
        ratio = step_cost(config, machine) / base_cost
    except BoxcrewError:  # settings that cannot be trained: the trial will say why
        return 1.0
    return float(f"{min(_MOST, max(1 / _MOST, ratio)):.2g}")


def step_cost(config: RunConfig, machine: Machine) -> float:
    """Return the seconds of a step, as they are assumed for such a machine. They come from operations and
    bytes, not from measured times, so that a study which is resumed finds the same.
    """
    opened, task_data, task = open_task(config, Screen())
    workload = measure_workload(opened, task_data, task).model_copy(update={"inputs": None})
    planner = Planner(config=opened, machine=machine, workload=workload, num_samples=task_data.num_train)
    plan = planner.plan()
    assert plan.predicted is not None
    return plan.predicted.step.likely
