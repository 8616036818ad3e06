"""The plan of a run: made once from what is known, and once more after a trial of real steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Host, Machine
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import LoaderOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.schedule import RunLimits
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.planner import Planner
from boxcrew.train.planning.trial import is_long_run
from boxcrew.train.planning.workload import estimate_workload, measure_workload


def plan_before_trial(
    config: RunConfig,
    machine: Machine,
    task_data: TaskData,
    task: Task,
    *,
    hosts: Sequence[Host] = (),
    is_here: bool = True,
) -> tuple[Planner, Plan]:
    """Return a planner with all that is known before training, and its plan.

    What recomputing activations would cost takes long to find out: that is done only if the settings ask for
    it, or if no other plan has enough memory.
    """
    recompute = config.deploy.recompute is True or config.plan is not None or config.goal.kind == "smallest"
    workload = measure_workload(config, task_data, task, recompute=recompute)
    num_samples = task_data.num_train
    planner = Planner(config=config, machine=machine, workload=workload, num_samples=num_samples, hosts=hosts)
    if is_here:
        planner = planner.with_history()
    if recompute:
        return planner, planner.plan()
    with suppress(UsageError):
        plan = planner.plan()
        if plan.predicted is None or all(memory.is_enough for memory in plan.predicted.memory):
            return planner, plan
    recomputed = estimate_workload(config, task, task_data.largest_batch, recompute=True).with_recompute
    planner = replace(planner, workload=workload.model_copy(update={"with_recompute": recomputed}))
    return planner, planner.plan()


def can_run_trial(config: RunConfig, plan: Plan) -> bool:
    """Return whether steps of a plan can be tried: one that was given is not changed, and a TPU has no room
    for a second process.
    """
    on_xla = any(clone.device.startswith("xla") for clone in plan.clones)
    in_turn = plan.strategy == "ddp" and len(plan.clones) > 1  # on more replicas they could not be tried
    return config.plan is None and plan.num_processes == 1 and not on_xla and not in_turn


def wants_trial(config: RunConfig, plan: Plan, limits: RunLimits) -> bool:
    """Return whether a run tries steps first; `trial=auto` does if the run is long."""
    wanted = is_long_run(limits) if config.trial == "auto" else config.trial
    return wanted and can_run_trial(config, plan)


def plan_after_trial(
    planner: Planner, plan: Plan, task_data: TaskData, screen: Screen
) -> tuple[Planner, Plan]:
    """Try a few steps of a plan; return a planner that knows what they took, and its plan."""
    screen.info("measuring a few steps in a separate process")
    num_samples = plan.micro_batches(plan.batch)[0]
    options = LoaderOptions(batch=num_samples, seed=planner.config.seed, largest=True)
    batch = next(task_data.loader(options).batches())
    planner = planner.with_trial(plan, task_data.facts, batch)
    for failure in planner.observed.failures:
        screen.warn(failure)
    try:
        return planner, planner.plan()
    except UsageError as error:  # the first plan was predicted to have enough memory, and may have
        screen.warn(f"after measuring, no plan has enough memory ({error.message}); the first plan is kept")
        return planner, plan
