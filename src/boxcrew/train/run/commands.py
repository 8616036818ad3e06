"""The entry points: train a run, resume it, or explain its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boxcrew.core.config import Tree, read_yaml
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.plan import Plan
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.placement import placement, roles
from boxcrew.train.planning.propose import can_try, plan_after_trial, propose_plan
from boxcrew.train.run.data import open_task
from boxcrew.train.run.directory import locked_folder, require_run, run_of_stage, stage_names
from boxcrew.train.run.prepare import prepare
from boxcrew.train.run.setup import require_measured
from boxcrew.train.run.stages import run_stages


def train(config: RunConfig, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Train a new run, or continue from the newest checkpoint in its directory. This process is the chief of
    `group`, or alone.
    """
    config = config.anchored()
    default = Path(config.task.folder) / (config.name or "train")
    if config.out is not None and run_of_stage(config.out) is not None:
        raise UsageError(
            f"out={config.out}: a stage of the run in {config.out.parent}",
            advice=f"boxcrew resume run={config.out.parent}, or another out=",
        )
    with locked_folder(config.out, default, screen.say) as folder:
        if config.task.stages():
            return run_stages(config, folder, screen, group or ReplicaGroup())
        if stage_names(folder):
            raise UsageError(
                f"out={folder}: a run with stages", advice="give a directory that does not exist yet"
            )
        return prepare(config, folder, screen, group or ReplicaGroup()).run()


def resume(folder: Path, changes: Tree, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Continue a run that was stopped, or that is to be longer, with some settings changed."""
    folder = run_of_stage(folder) or require_run(folder)
    if not stage_names(folder) and not list_checkpoints(folder / "checkpoints"):
        raise ModelError(
            f"run={folder}: cannot be resumed: it has no finished checkpoint",
            advice="start it again with boxcrew train",
        )
    stored = RunConfig.of(read_yaml(folder / "config.yaml"))
    return train(stored.changed({**changes, "out": str(folder)}), screen, group)


def explain(
    config: RunConfig, screen: Screen, machine: Machine | None = None, *, with_steps: bool = False
) -> tuple[Plan, dict[str, Any]]:
    """Show the plan and what each device would do, and return both; nothing is trained or written.

    `machine` is a described machine; None is this one, on which a few steps are tried first if `with_steps`.
    """
    is_here = machine is None
    machine = machine or probe_machine()
    screen.say(f"machine: {machine.headline()}{'' if is_here else ' (assumed)'}")
    config, task_data, task = open_task(config.anchored(), screen)
    planner, plan = propose_plan(config, machine, task_data, task, is_here=is_here)
    if with_steps and is_here and can_try(config, plan):
        require_measured(config.evaluation.metric, task_data)
        planner, plan = plan_after_trial(planner, plan, task_data, screen)
    for line in (*plan.explain(), *plan.expectations(), *config.optim.explain(plan.batch)):
        screen.say(f"plan: {line}")
    screen.table(
        f"who does what ({plan.strategy})",
        ("who", "does", "where"),
        roles(plan, task.network, config.optim.name),
        numbers=False,
    )
    if plan.predicted is not None:
        screen.table(f"memory at the peak (goal {plan.goal})", *plan.predicted.memory_table())
    for line in plan.rejected:
        screen.say(f"not chosen: {line}")
    return plan, {"plan": plan.tree(), "workload": planner.workload.tree(), **placement(plan, task.network)}
