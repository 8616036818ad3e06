"""The explanation of a run before it begins: its plan, or those of its stages. Nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from boxcrew.core.stage import stage_folders
from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.plan import Plan
from boxcrew.plan.prediction import Interval
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.from_settings import refuse_servers
from boxcrew.train.planning.placement import placement, roles
from boxcrew.train.planning.propose import can_run_trial, plan_after_trial, plan_before_trial
from boxcrew.train.planning.solve_time import UNPREDICTED, cpu_rate, describe_solve, solve_time
from boxcrew.train.run.data import open_task
from boxcrew.train.run.setup import require_measured
from boxcrew.train.run.stages import stage_settings


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """The plan of a run, or one for each stage that trains, and all about them as JSON values."""

    plans: tuple[Plan, ...]
    tree: dict[str, Any]
    times: Mapping[str, Interval | None]  # of each stage by its folder, or of `training`; None: not predicted

    @property
    def time(self) -> Interval:
        """The predicted time of the whole run, of all its stages."""
        return reduce(Interval.plus, filter(None, self.times.values()), Interval(low=0, likely=0, high=0))


def explain(
    config: RunConfig, screen: Screen, machine: Machine | None = None, *, with_steps: bool = False
) -> Explanation:
    """Show and return the plan, and what each device would do.

    `machine` is a described machine; None is this one, on which a few steps are tried first if `with_steps`.
    """
    is_here = machine is None
    machine = machine or probe_machine()
    screen.info(f"machine: {machine.headline()}{'' if is_here else ' (assumed)'}")
    config, task_data, task = open_task(config.with_absolute_path(), screen)
    explainer = _Explainer(machine=machine, is_here=is_here, with_steps=with_steps, screen=screen)
    if config.task.stages():
        return explainer.explain_stages(config, task_data, task)
    plan, _, tree = explainer.explain_run(config, task_data, task)
    return Explanation(plans=(plan,), tree=tree, times={"training": _run_time(plan)})


@dataclass(frozen=True, kw_only=True, eq=False)
class _Explainer:
    machine: Machine
    is_here: bool
    with_steps: bool
    screen: Screen

    def explain_run(
        self, config: RunConfig, task_data: TaskData, task: Task
    ) -> tuple[Plan, Workload, dict[str, Any]]:
        """Show and return the plan of a run without stages, or of one stage that trains, its workload, and
        both with what each device does as JSON values.
        """
        screen = self.screen
        planner, plan = plan_before_trial(config, self.machine, task_data, task, is_here=self.is_here)
        if self.with_steps and self.is_here and can_run_trial(config, plan):
            require_measured(config.evaluation.metric, task_data)
            planner, plan = plan_after_trial(planner, plan, task_data, screen)
        for line in (*plan.explain(), *plan.expectations(), *config.optim.explain(plan.batch)):
            screen.info(f"plan: {line}")
        screen.table(
            f"who does what ({plan.strategy})",
            ("who", "does", "where"),
            roles(plan, task.network, config.optim.name),
            numbers=False,
        )
        if plan.predicted is not None:
            screen.table(f"memory at the peak (goal {plan.goal})", *plan.predicted.memory_table())
        for line in plan.rejected:
            screen.info(f"not chosen: {line}")
        workload = planner.workload
        tree = {"plan": plan.tree(), "workload": workload.tree(), **placement(plan, task.network)}
        return plan, workload, tree

    def explain_stages(self, config: RunConfig, task_data: TaskData, task: Task) -> Explanation:
        """Show and return the plan and the time of each stage, and the time of all."""
        stages = config.task.stages()
        plans: list[Plan] = []
        trees: list[dict[str, Any]] = []
        times: dict[str, Interval | None] = {}
        rate: float | None = None
        for number, (stage, folder) in enumerate(zip(stages, stage_folders(stages), strict=True), start=1):
            self.screen.info(f"stage {number} of {len(stages)}: {stage.name}")
            tree: dict[str, Any] = {"plan": None}
            if stage.kind == "solve":
                time = solve_time(stage, task_data, task, rate)
                self.screen.info(f"plan: {describe_solve(time)}")
            else:
                own = stage_settings(config, stage)
                plan, workload, tree = self._explain_stage(own, (config, task_data, task))
                refuse_servers(config, plan.servers)
                time = _run_time(plan)
                rate = cpu_rate(plan, workload)
                plans.append(plan)
            times[folder] = time
            trees.append({"stage": folder, "kind": stage.kind, "seconds": _tree(time), **tree})
        explanation = Explanation(plans=tuple(plans), tree={"plans": trees}, times=times)
        total = explanation.time
        cells = [*(UNPREDICTED if time is None else str(time) for time in times.values()), str(total)]
        self.screen.table(
            "expected time", ("stage", "time"), list(zip((*times, "all"), cells, strict=True)), numbers=False
        )
        return replace(explanation, tree={**explanation.tree, "seconds": _tree(total)})

    def _explain_stage(
        self, own: RunConfig, opened: tuple[RunConfig, TaskData, Task]
    ) -> tuple[Plan, Workload, dict[str, Any]]:
        """Show and return the plan of a stage with these settings, as `explain_run` does. `opened` is what
        the whole run has.
        """
        config, task_data, task = opened
        if (own.task, own.data) != (config.task, config.data):
            own, task_data, task = open_task(own, self.screen)
        return self.explain_run(own, task_data, task)


def _run_time(plan: Plan) -> Interval | None:
    return None if plan.predicted is None else plan.predicted.run


def _tree(time: Interval | None) -> dict[str, Any] | None:
    return None if time is None else time.tree()
