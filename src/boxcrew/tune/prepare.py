"""The start of a study: everything that its trials share is decided here, and stored."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from boxcrew.api import run_config
from boxcrew.core.config import Tree, merge
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.ray_cluster import require_ray
from boxcrew.core.units import counted, format_duration
from boxcrew.core.version import VERSION
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.planner import Planner
from boxcrew.train.planning.propose import can_run_trial, plan_after_trial, plan_before_trial
from boxcrew.train.planning.solve_time import cpu_rate, solve_time
from boxcrew.train.run.data import open_task
from boxcrew.tune.choose import choose_space, split_search
from boxcrew.tune.cost import changes_cost, step_cost
from boxcrew.tune.record import ETA, Pruner, Sampler, StudyRecord
from boxcrew.tune.run_state import can_pause
from boxcrew.tune.sampling import STARTUP, grid, require_optuna
from boxcrew.tune.settings import TuneConfig
from boxcrew.tune.storage import absolute_url
from boxcrew.tune.words import parse_dimensions

WORTH_MEASURING = 600.0
"""Seconds of a study from which on a few steps are measured before it."""
WORTH_PAUSING = 20.0
"""Seconds of a training from which on it is worth stopping it early: each part begins with some seconds of
preparation."""
LEAST_PART = 5.0
"""Seconds of a part of a training, at least: an evaluation at its end takes some too."""
LEAST_TRAININGS = 6
"""Trainings of full length for which a study should have time; else trials are shorter than the recipe."""
_RUNGS = 3

QUIET: Tree = {
    "summaries": {"tensorboard": False, "histograms": False, "images": 0},
    "saver": {"keep": 1},
    "trial": False,
}
"""Settings of trials that what they learn does not depend on."""


@dataclass(frozen=True, kw_only=True)
class TrialCost:
    """The size of a study: steps of a trial, what one takes, and how many trainings there is time for."""

    steps: int
    step_seconds: float | None
    trainings: float | None  # of that length; None: not known, or not limited
    solve_seconds: float | None = None  # of the closed forms at its end; None if there are none


def prepare_study(config: TuneConfig, screen: Screen) -> StudyRecord:
    """Return the record of a new study. Nothing is written."""
    if config.on == "ray":
        require_ray("train,tune,ray")
    words = dict(config.settings)
    given = _given(config, words)
    parse_dimensions(split_search(config.search)[1], given)  # so that a misspelled word costs no time
    opened, task_data, task = open_task(given, Screen())
    screen.info(f"data: {given.data.path} {task_data.headline()}")
    _require_measured(given, task_data)
    space = choose_space(config.search, given, task_data)
    machine = _share(probe_machine(), config.workers)
    planner, plan = plan_before_trial(opened, machine, task_data, task)
    if config.time is not None and config.time >= WORTH_MEASURING and can_run_trial(opened, plan):
        _, plan = plan_after_trial(planner, plan, task_data, screen)
    task_data.require_solvable(Path.cwd())
    solving = _solve_seconds(planner, plan, task_data, task)
    is_length_given = bool({"steps", "epochs"} & words.keys())
    cost = _cost(config, planner, plan, is_length_given=is_length_given, solving=solving)
    sampler, pruner = _sampler_and_pruner(config, cost, given)
    study = StudyRecord(
        identity=secrets.token_hex(8),
        base=_base(given, plan, words, steps=cost.steps).tree(),
        given=given.tree(),
        space=space,
        sampler=sampler,
        pruner=pruner,
        metric=given.metric,
        higher_is_better=given.task.metrics[given.metric],
        rungs=_rungs(cost, pruner, is_chosen=config.pruner != "auto"),
        seed=given.seed,
        workers=config.workers,
        on=config.on,
        devices=_devices(given, machine) if config.workers > 1 and config.on == "machine" else (),
        trials=config.trials,
        time=config.time,
        storage=None if config.storage is None else absolute_url(config.storage),
        data_digest=task_data.digest(),
        step_seconds=cost.step_seconds,
        solve_seconds=cost.solve_seconds,
        machine=machine.tree(),
        base_cost=step_cost(given, machine)
        if changes_cost([each.target for each in space.dimensions])
        else None,
        versions={"boxcrew": VERSION, **{name: version(name) for name in ("torch", "optuna")}},
    )
    if sampler == "grid":
        study = study.model_copy(update={"trials": min(len(grid(study)) + 1, config.trials or 1 << 30)})
    _describe(study, cost, screen)
    return study


def require_same_data(study: StudyRecord) -> None:
    """Raise `UsageError` if the data has changed since the study was started: results would not compare."""
    config = RunConfig.of(study.given)
    _, task_data, _ = open_task(config, Screen())
    if task_data.digest() != study.data_digest:
        raise UsageError(
            f"{config.data.path}: has changed since this study began",
            advice="bring the data back as it was, or begin a new study with another out=",
        )


def _given(config: TuneConfig, words: dict[str, Any]) -> RunConfig:
    """Return the settings of the recipe with those of the user, in one process on this machine."""
    given = run_config(config.recipe, words).with_absolute_path()
    if config.pruner not in {"auto", "none"} and not can_pause(given.task.stages()):
        raise UsageError(
            f"pruner={config.pruner}: {config.recipe} has several stages of steps, and is trained as a whole",
            advice="leave it out",
        )
    if given.deploy.replicas not in {1, "auto"} or given.plan is not None:
        raise UsageError(
            "deploy.replicas=, plan=: a trial is trained in one process", advice="give workers=N"
        )
    if given.steps is None and given.epochs is None:
        raise UsageError("trials need a length in steps", advice="give epochs= or steps= for a trial")
    return given.changed({"deploy": {"replicas": 1}, "out": None, "name": None})


def _devices(given: RunConfig, machine: Machine) -> tuple[str, ...]:
    """Return the accelerators that trainings at once share out, unless the user has named a device."""
    return tuple(device.name for device in machine.accelerators) if given.device == "auto" else ()


def _share(machine: Machine, workers: int) -> Machine:
    """Return the part of a machine that one of several trials has, with nothing else to do."""
    machine = machine.model_copy(update={"busy_cores": 0.0})
    parts = {"cores": max(1.0, machine.cores // workers), "memory_bytes": machine.memory_bytes // workers}
    devices = [
        device.model_copy(update={"memory_bytes": device.memory_bytes // workers})
        for device in machine.devices
    ]
    return machine.model_copy(update={**parts, "devices": tuple(devices)}) if workers > 1 else machine


def _solve_seconds(planner: Planner, plan: Plan, task_data: TaskData, task: Task) -> float | None:
    """Return the predicted seconds of the closed forms of a training; None if it has none."""
    stages = [stage for stage in planner.config.task.stages() if stage.kind == "solve"]
    rate = cpu_rate(plan, planner.workload)
    times = [solve_time(stage, task_data, task, rate) for stage in stages]
    return sum(time.likely for time in times if time is not None) if stages else None


def _cost(
    config: TuneConfig, planner: Planner, plan: Plan, *, is_length_given: bool, solving: float | None
) -> TrialCost:
    """Return the length of trials: that of the recipe, or less if the time is not enough for a search."""
    seconds = None if plan.predicted is None else plan.predicted.step.likely
    steps = planner.config.limits(num_samples=planner.num_samples, batch=plan.batch).steps
    if config.time is None or seconds is None:
        return TrialCost(steps=steps, step_seconds=seconds, trainings=None, solve_seconds=solving)
    available = config.time * config.workers / seconds  # in steps, as what follows
    closed = (solving or 0.0) / seconds
    if not is_length_given:
        each = available / LEAST_TRAININGS
        steps = max(1, min(steps, int(max(each - closed, each / 2))))
    trainings = available / (steps + closed)
    return TrialCost(steps=steps, step_seconds=seconds, trainings=trainings, solve_seconds=solving)


def _require_measured(given: RunConfig, task_data: TaskData) -> None:
    """Raise `DataError` if the metric that trials are compared by cannot be measured on this data."""
    if (reason := task_data.unmeasured(given.metric)) is not None:
        raise DataError(
            f"{given.data.path}: {reason}: {given.metric} cannot be measured, so nothing can be compared"
        )


def _sampler_and_pruner(config: TuneConfig, cost: TrialCost, given: RunConfig) -> tuple[Sampler, Pruner]:
    """Return how settings are drawn and when trials are stopped early; raise `UsageError` if the two that the
    user chose do not go together.
    """
    pruner = _pruner(config, cost) if can_pause(given.task.stages()) else "none"
    sampler = _sampler(config, cost, pruner)
    require_optuna(sampler)
    if sampler == "cma" and (pruner != "none" or config.workers > 1):
        raise UsageError(
            "sampler=cma: learns from whole trainings, one after the other", advice="pruner=none workers=1"
        )
    return sampler, pruner


def _pruner(config: TuneConfig, cost: TrialCost) -> Pruner:
    if config.pruner != "auto":
        return config.pruner
    if config.sampler in {"grid", "cma"}:  # which want all results, and of the same length
        return "none"
    return "none" if cost.steps * (cost.step_seconds or 0.0) < WORTH_PAUSING else "halving"


def _sampler(config: TuneConfig, cost: TrialCost, pruner: Pruner) -> Sampler:
    if config.sampler != "auto":
        return config.sampler
    # Of ETA trials at a rung one goes on: a trial takes about a quarter of a full training.
    share = 1.0 if pruner == "none" else 0.26
    expected = [float(config.trials)] if config.trials is not None else []
    expected += [cost.trainings / share] if cost.trainings is not None else []
    return "random" if min(expected, default=0.0) <= STARTUP else "tpe"


def _rungs(cost: TrialCost, pruner: Pruner, *, is_chosen: bool) -> tuple[int, ...]:
    """Return the steps after which trials are compared: a ninth, a third and all of the length. If the user
    has not chosen the pruner, those are left out that take less than `LEAST_PART` seconds.
    """
    if pruner == "none":
        return (cost.steps,)
    rungs = {max(1, round(cost.steps / ETA**power)) for power in range(_RUNGS)}
    least = 0.0 if is_chosen else LEAST_PART / (cost.step_seconds or LEAST_PART)
    return tuple(sorted(rung for rung in rungs if rung >= least or rung == cost.steps))


def _base(given: RunConfig, plan: Plan, words: dict[str, Any], *, steps: int) -> RunConfig:
    """Return the settings of trial 0, with all that decides its numbers to the last bit."""
    fixed: Tree = {
        **QUIET,
        "time": None,
        "epochs": None,
        "steps": steps,
        "deploy": {
            "memory_format": plan.memory_format,
            "threads": plan.threads,
            "accumulation": plan.accumulation,
            "recompute": plan.recompute,
            "precision": plan.precision,
        },
        "loader": {"workers": plan.loader_workers},
        "evaluation": {"patience": None},
    }
    own = {name: words[name] for name in ("summaries", "saver") if isinstance(words.get(name), dict)}
    return given.changed(merge(fixed, own, choices={}))


def _describe(study: StudyRecord, cost: TrialCost, screen: Screen) -> None:
    for dimension in study.space.dimensions:
        screen.info(f"search: {dimension.target}: {dimension}")
    each = cost.steps * (cost.step_seconds or 0.0) + (cost.solve_seconds or 0.0)
    seconds = f", about {format_duration(each)}" if each else ""
    rungs = ", ".join(map(str, study.rungs[:-1]))
    compared = f"; compared after {rungs} steps, where the best 1 in {ETA} continues" if rungs else ""
    screen.info(f"a trial: {counted(study.rungs[-1], 'step')}{seconds}{compared}")
    limits = [format_duration(study.time)] if study.time is not None else []
    limits += [counted(study.trials, "trial")] if study.trials is not None else []
    at_once = f", {study.workers} at once" if study.workers > 1 else ""
    if cost.trainings is not None and cost.trainings < 1:
        screen.warn("a trial may take longer than the whole study, so perhaps none finishes: give more time=")
    screen.info(f"study: {study.sampler} and {study.pruner}, for {' or '.join(limits)}{at_once}")
