"""The time of a stage that solves a closed form: predicted from the speed of the stage that trains."""

from __future__ import annotations

from boxcrew.core.stage import Stage
from boxcrew.core.workload import Workload
from boxcrew.plan.plan import Plan
from boxcrew.plan.prediction import Interval
from boxcrew.tasks.base import Task
from boxcrew.tasks.cost.flops import forward_flops
from boxcrew.tasks.data import TaskData

UNPREDICTED = "closed form, not predicted"
_SPREAD = 1.0  # by how much it may be off: half of it, or twice


def cpu_rate(plan: Plan, workload: Workload) -> float | None:
    """Return the operations per second of a predicted step on the CPU, where closed forms are solved; None if
    the step is not predicted, or computed elsewhere.
    """
    if plan.predicted is None or any(device != "cpu" for device in plan.devices):
        return None
    return plan.batch * workload.without_recompute.operations / plan.predicted.step.likely


def solve_time(stage: Stage, task_data: TaskData, task: Task, rate: float | None) -> Interval | None:
    """Return the time of a solve stage at so many operations per second, without what is computed from the
    network's outputs; None if it cannot be predicted.
    """
    if stage.passes is None or not rate:
        return None
    operations = forward_flops(task.network, *task.network_inputs(task_data.largest_batch(1)))
    return Interval.around(stage.passes * task_data.num_train * operations / rate, _SPREAD)


def describe_solve(time: Interval | None) -> str:
    return UNPREDICTED if time is None else f"closed form on the CPU, expected: {time}"
