"""The preparation of a run: everything is decided here, before anything is written or trained."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from boxcrew.core.version import VERSION
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.evaluate.advice import MAX_LINES_BEFORE, worst
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.from_settings import require_replicas, resumed_plan, with_clones_of
from boxcrew.train.planning.planner import Planner
from boxcrew.train.planning.propose import plan_after_trial, plan_before_trial, wants_trial
from boxcrew.train.run.data import open_task
from boxcrew.train.run.record import RunRecord, data_facts, warn_of_damage
from boxcrew.train.run.resuming import (
    Resumed,
    describe_changes,
    find_resumed,
    refuse_finished,
    require_resumable,
    with_resolved_auto,
)
from boxcrew.train.run.session import Session
from boxcrew.train.run.setup import RunSetup
from boxcrew.train.run.stored_settings import Changes, changes_since


def prepare(
    config: RunConfig,
    folder: Path,
    screen: Screen,
    group: ReplicaGroup,
    *,
    is_last: bool = True,
    pause_at: int | None = None,
) -> Session:
    """Return a session that is ready to run in `folder`, with its data, task, plan and start decided.

    `is_last` says whether the group has no other session after it. The run pauses after step `pause_at`.
    """
    resumed, config, changes = _resumed(config, folder, screen)
    machine = _probe_machine(screen)
    config, task_data, task = _open_task(config, folder, screen)
    hosts = group.hosts or (Host(name="", machine=machine, ranks=(0,)),)
    planned = _with_own_clones(config, resumed, group)
    planner, plan = plan_before_trial(planned, machine, task_data, task, hosts=hosts)
    require_replicas(plan, group.num_replicas)
    setup = RunSetup.of(config, plan, task_data, task=task, folder=folder, screen=screen)
    setup = replace(setup, pause_at=pause_at)
    init = _initialize(config, task, resumed, screen)
    if resumed is None:
        advice = _advice(setup)
        _warn_of_random_layers(setup, plan, init)
        if wants_trial(config, plan, setup.limits):
            planner, plan = plan_after_trial(planner, plan, task_data, screen)
    else:
        advice = [dict(item) for item in resumed.record.advice] if resumed.is_own else []
        plan = _kept_plan(setup, resumed, planner, plan, machine)
    for line in (*describe_changes(changes, config), *_describe_plan(config, plan)):
        screen.info(line)
    return Session(
        setup=setup,
        planner=planner,
        plan=plan,
        group=group,
        checkpoint=resumed.checkpoint if resumed is not None else None,
        record=RunRecord(
            config=config,
            plan=plan,
            machine=machine.model_copy(update={"link": hosts[0].machine.link}),
            data=data_facts(task_data),
            init=init,
            advice=advice,
        ),
        changes=changes,
        is_last=is_last,
    )


def _resumed(config: RunConfig, folder: Path, screen: Screen) -> tuple[Resumed | None, RunConfig, Changes]:
    """Return what the run continues from, its complete settings, and which of them have changed."""
    resumed = find_resumed(folder, config, screen)
    if resumed is None:
        config.init.require_source()
        return None, config, {}
    began = resumed.record.config
    config = with_resolved_auto(config, began.task.tree())
    if not resumed.is_own:
        return resumed, config, {}
    changes = changes_since(began, config, folder)
    warn_of_damage(folder, screen.warn)
    refuse_finished(resumed, config)
    return resumed, config, changes


def _probe_machine(screen: Screen) -> Machine:
    """Return this host, and print it with the versions that compute."""
    machine = probe_machine()
    screen.info(f"boxcrew {VERSION}, torch {torch.__version__}, Python {platform.python_version()}")
    screen.info(f"machine: {machine.headline()}")
    return machine


def _with_own_clones(config: RunConfig, resumed: Resumed | None, group: ReplicaGroup) -> RunConfig:
    """Return the settings to plan with: those of a run that continues keep its clones."""
    if resumed is None or not resumed.is_own:
        return config
    return with_clones_of(config, resumed.record.plan, num_replicas=group.num_replicas)


def _kept_plan(setup: RunSetup, resumed: Resumed, planner: Planner, plan: Plan, machine: Machine) -> Plan:
    """Return the plan of the resumed run, as far as it must be kept; raise an error if it cannot go on."""
    before = resumed.record
    require_resumable(setup, resumed, plan)
    kept = resumed_plan(plan, before.plan, setup.config, machine=machine, then=before.machine)
    return planner.with_prediction(kept)


def _open_task(config: RunConfig, folder: Path, screen: Screen) -> tuple[RunConfig, TaskData, Task]:
    """Return the complete settings with the data and the task that they describe, and tell what they are."""
    config, task_data, task = open_task(config, screen)
    task_data.require_solvable(folder)
    screen.info(task_data.describe(task))
    if (reason := task_data.unmeasured(config.metric)) is not None:
        screen.warn(f"{reason}: {config.metric} cannot be measured; the last weights are used as the best")
    return config, task_data, task


def _initialize(config: RunConfig, task: Task, resumed: Resumed | None, screen: Screen) -> Mapping[str, Any]:
    """Initialize the parameters and return a report. A checkpoint of the run itself precedes `init=`."""
    if resumed is not None and resumed.is_own:
        step = resumed.checkpoint.step
        ignored = f"; init={config.init.kind} is ignored" if config.init.kind != "scratch" else ""
        screen.info(f"init: continuing from this run's own checkpoint at step {step}{ignored}")
        return resumed.record.init
    report = config.init.initialize(task.network)
    screen.info(report.sentence())
    return report.to_json()


def _advice(setup: RunSetup) -> list[dict[str, Any]]:
    """Return all advice on the data and the network; print the most important."""
    from_scratch = setup.config.init.kind == "scratch"
    advice = setup.task_data.advice(setup.task, from_scratch=from_scratch)
    for item in worst(advice, limit=MAX_LINES_BEFORE):
        setup.screen.info(f"advice: {item}")
    return [item.to_json() for item in worst(advice, limit=len(advice))]


def _warn_of_random_layers(setup: RunSetup, plan: Plan, init: Mapping[str, Any]) -> None:
    """Warn of layers that stay at their random start: they spoil all layers after them."""
    task = setup.task
    remade = init["remade"] if set(task.network.classes) <= set(init["kept_classes"]) else ()
    loaded = {f"{task.network_name}.{name}" for name in (*init["loaded"], *remade)}
    random = sorted(setup.freeze.never_learn - loaded)
    if random:
        setup.screen.warn(
            f"{len(random)} tensors are frozen at their random start, such as {random[0]}; "
            "add them to trainable=, or load weights for them (init=)"
        )
    if plan.batch_norm == "frozen" and setup.config.init.kind == "scratch":
        setup.screen.warn("deploy.batch_norm=frozen with init=scratch: BatchNorms never learn any statistics")


def _describe_plan(config: RunConfig, plan: Plan) -> list[str]:
    lines = [*plan.explain(), *plan.expectations(), *config.optim.explain(plan.batch)]
    if config.plan is not None:
        lines.insert(0, f"{config.plan} is used as it is: batch=, device= and deploy.* are ignored")
    return [f"plan: {line}" for line in lines]
