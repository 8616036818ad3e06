"""One training, whole: from settings to a run directory with weights and numbers."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from boxcrew.core.config import Tree, read_yaml, to_yaml
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.files import write_json, write_text
from boxcrew.core.version import VERSION
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.evaluate.advice import MAX_LINES_BEFORE, worst
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.probe import probe_machine, usable_cores
from boxcrew.plan.explain import expectations, memory_table
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint, list_checkpoints, newest_checkpoint
from boxcrew.train.loop.hooks.freeze import Freeze
from boxcrew.train.loop.schedule import Length
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.from_settings import require_replicas, resumed_plan
from boxcrew.train.planning.placement import placement, roles
from boxcrew.train.planning.planner import Planner
from boxcrew.train.planning.trial import is_trial_worthwhile
from boxcrew.train.planning.workload import account_for, workload_for
from boxcrew.train.run.changes import as_settled, changes_since, record, require_same_batch, sentences
from boxcrew.train.run.data import load_task_data, settled
from boxcrew.train.run.directory import held_folder, require_run
from boxcrew.train.run.init import Resume
from boxcrew.train.run.replicas import tell_others
from boxcrew.train.run.session import Session, stored_advice


def train(config: RunConfig, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Trains from nothing, or goes on from a checkpoint in the run's own directory. With others in `group`,
    as their chief.
    """
    config = config.anchored()
    usual = Path(config.task.folder) / (config.name or "train")
    with held_folder(config.out, usual, screen.say) as folder:
        return _train(config, folder, screen, group or ReplicaGroup())


def _train(config: RunConfig, folder: Path, screen: Screen, group: ReplicaGroup) -> Outcome:
    own = _own_checkpoint(folder, screen)
    begun_in = _begun_in(folder, own, config)
    if begun_in is not None:
        config = as_settled(begun_in, config)
    past = own or _other_checkpoint(config)
    changes = changes_since(folder, config) if own is not None else {}
    machine = probe_machine()
    screen.say(f"boxcrew {VERSION}, torch {torch.__version__}, Python {platform.python_version()}")
    screen.say(f"machine: {machine.headline()}")
    task_data = load_task_data(config, workers=max(1, int(machine.cores)), screen=screen)
    task_data, config = settled(task_data, config, screen)
    torch.manual_seed(config.seed)
    task = task_data.task()
    screen.say(task_data.describe(task))
    hosts = group.hosts or (Host(name="", machine=machine, ranks=(0,)),)
    planner = _planner(config, machine, task_data, task, hosts=hosts)
    plan = planner.plan()
    require_replicas(plan, group.size)
    session = Session.of(config, plan, task_data, task=task, folder=folder, screen=screen)
    start = _begin(config, task, own, screen)
    advice = _advice(session, past, screen)
    if past is None:
        _warn_of_idle(task, session.freeze, start, screen)
        if plan.batch_norm == "frozen" and config.init.kind == "scratch":
            screen.warn("deploy.batch_norm=frozen with init=scratch: BatchNorms never learn any statistics")
    if past is not None:
        session.require_fit(past)
    if own is not None:
        require_same_batch(folder, plan)
        session.refuse_finished(own)
    if begun_in is not None:
        plan = planner.with_prediction(resumed_plan(plan, begun_in, machine, config))
    elif _can_try(config, plan) and _is_to_try(config, session.length):
        planner, plan = _tried(planner, plan, session)
    planned = (*plan.explain(), *expectations(plan), *config.optim.explain(plan.batch))
    if config.plan is not None:
        planned = (f"{config.plan}, word for word: batch=, device= and deploy.* have no say", *planned)
    for line in (*sentences(changes, config), *(f"plan: {line}" for line in planned)):
        screen.say(line)
    deployment = deploy(plan, group=group)
    _write_records(session, machine, deployment, start, advice)
    if own is not None:
        record(folder, changes, step=own.step)
    screen.open_log(folder / "train.log")
    tell_others(session, plan, past, group)
    try:
        with deployment:
            return session.run(deployment, past, planner)
    finally:
        screen.close_log()


def _planner(
    config: RunConfig,
    machine: Machine,
    task_data: TaskData,
    task: Task,
    *,
    hosts: Sequence[Host] = (),
    is_here: bool = True,
) -> Planner:
    """Activations that are computed again are a last resort, and only looked at then."""
    asked = config.deploy.recompute is True or config.plan is not None or config.goal.kind == "smallest"
    workload = workload_for(config, task_data, task, recompute=asked)
    found = Planner.of(
        config, machine, workload, num_samples=task_data.num_train, hosts=hosts, is_here=is_here
    )
    if asked or found.has_enough_memory:
        return found
    again = account_for(config, task, task_data.largest_batch, recompute=True)
    return replace(found, workload=workload.model_copy(update={"recomputed": again.recomputed}))


def _can_try(config: RunConfig, plan: Plan) -> bool:
    """A TPU has no room for a second process."""
    on_xla = any(clone.device.startswith("xla") for clone in plan.clones)
    return config.plan is None and plan.num_processes == 1 and not on_xla


def _is_to_try(config: RunConfig, length: Length) -> bool:
    return is_trial_worthwhile(length) if config.trial == "auto" else config.trial


def _tried(planner: Planner, plan: Plan, session: Session) -> tuple[Planner, Plan]:
    """The planner that knows what a few steps take, and its plan."""
    session.screen.say("measuring a few steps in a separate process")
    batch = session.first_batch(plan.micro_batches(plan.batch)[0])
    planner = planner.with_trial(plan, session.task_data.facts, batch)
    for failure in planner.observed.failures:
        session.screen.warn(failure)
    try:
        return planner, planner.plan()
    except UsageError as error:  # what was predicted before seemed to fit, and may
        session.screen.warn(f"the measured steps contradict the plan: {error.message}")
        return planner, plan


def explain(
    config: RunConfig, screen: Screen, machine: Machine | None = None, *, with_steps: bool = False
) -> tuple[Plan, dict[str, Any]]:
    """The plan, and who would do what where, without doing it: nothing is trained, and no run directory is
    made. For this machine, or for one that is not here. `with_steps`: a few are tried first, if it is here.
    """
    config = config.anchored()
    is_here = machine is None
    machine = machine or probe_machine()
    screen.say(f"machine: {machine.headline()}{'' if is_here else ' (assumed)'}")
    task_data = load_task_data(config, workers=max(1, int(usable_cores())), screen=screen)
    task_data, config = settled(task_data, config, screen)
    task = task_data.task()
    planner = _planner(config, machine, task_data, task, is_here=is_here)
    plan = planner.plan()
    if with_steps and is_here and _can_try(config, plan):
        session = Session.of(config, plan, task_data, task=task, folder=Path(), screen=screen)
        planner, plan = _tried(planner, plan, session)
    for line in (*plan.explain(), *expectations(plan), *config.optim.explain(plan.batch)):
        screen.say(f"plan: {line}")
    screen.table(
        f"who does what ({plan.strategy})",
        ("who", "does", "where"),
        roles(plan, task.network, config.optim.name),
        numbers=False,
    )
    if plan.predicted is not None:
        screen.table(f"memory at the peak (goal {plan.goal})", *memory_table(plan))
    for line in plan.rejected:
        screen.say(f"not chosen: {line}")
    return plan, {"plan": plan.tree(), "workload": planner.workload.tree(), **placement(plan, task.network)}


def resume(folder: Path, changes: Tree, screen: Screen, group: ReplicaGroup | None = None) -> Outcome:
    """Goes on with a run that was stopped, or that is to be longer."""
    require_run(folder)
    if not list_checkpoints(folder / "checkpoints"):
        raise ModelError(
            f"run={folder}: cannot be resumed: it has no finished checkpoint",
            advice="start it anew with boxcrew train",
        )
    stored = RunConfig.of(read_yaml(folder / "config.yaml"))
    return train(stored.changed({**changes, "out": str(folder)}), screen, group)


def _own_checkpoint(folder: Path, screen: Screen) -> Checkpoint | None:
    """The newest whole one in the run's directory. A run is never begun anew over one that was there."""
    own, complaints = newest_checkpoint(folder / "checkpoints")
    if own is None and complaints:
        raise ModelError(
            f"{folder}: none of its checkpoints can be used: {complaints[0]}",
            advice="begin a new run with another out=; its weights, if any, can be the start: init=finetune",
        )
    if own is None and any((folder / "weights").glob("*.safetensors")):
        raise UsageError(
            f"out={folder}: has weights, but no checkpoint to go on from",
            advice="give a directory that does not exist yet",
        )
    for complaint in complaints:
        screen.warn(f"{complaint}; an older checkpoint is used")
    return own


def _begun_in(folder: Path, own: Checkpoint | None, config: RunConfig) -> Path | None:
    """The directory that the run began in, where it goes on with one."""
    if own is not None:
        return folder
    return require_run(config.init.run) if isinstance(config.init, Resume) else None


def _other_checkpoint(config: RunConfig) -> Checkpoint | None:
    """The one that `init=resume` names."""
    if not isinstance(config.init, Resume):
        return None
    newest, complaints = newest_checkpoint(require_run(config.init.run) / "checkpoints")
    if newest is None:
        why = complaints[0] if complaints else "it has no finished checkpoint"
        raise ModelError(f"init.run={config.init.run}: cannot be resumed: {why}")
    # The best weights so far stand in the other directory: here the first examination sets the mark.
    hooks = newest.state["hooks"]
    evaluated = {**hooks["evaluation"], "best": None, "without_gain": 0}
    return replace(newest, state={**newest.state, "hooks": {**hooks, "evaluation": evaluated}})


def _begin(config: RunConfig, task: Task, own: Checkpoint | None, screen: Screen) -> dict[str, Any]:
    """Fills the parameters: the run's own checkpoint wins over everything, and that is said."""
    if own is not None:
        passed_over = f"; init={config.init.kind} is passed over" if config.init.kind != "scratch" else ""
        screen.say(f"init: going on from this run's own checkpoint at step {own.step}{passed_over}")
        return {"kind": "own checkpoint", "step": own.step, "passed_over": config.init.kind}
    report = config.init.fill(task.network)
    screen.say(report.sentence())
    return report.to_json()


def _advice(session: Session, past: Checkpoint | None, screen: Screen) -> list[dict[str, Any]]:
    """On the data and the network, before training; a run that goes on has had it. All of it is kept, the
    worst is said.
    """
    if past is not None:
        return stored_advice(session.folder)
    from_scratch = session.config.init.kind == "scratch"
    found = session.task_data.advice(session.task, from_scratch=from_scratch)
    for one in worst(found, limit=MAX_LINES_BEFORE):
        screen.say(f"advice: {one}")
    return [one.to_json() for one in worst(found, limit=len(found))]


def _warn_of_idle(task: Task, freeze: Freeze, start: dict[str, Any], screen: Screen) -> None:
    """A layer left at random numbers for good spoils all that follows it, and nothing else would say so."""
    remade = start["remade"] if set(task.network.classes) <= set(start["kept_classes"]) else ()
    filled = {f"{task.network_name}.{name}" for name in (*start["loaded"], *remade)}
    idle = sorted(freeze.never_learn - filled)
    if idle:
        screen.warn(
            f"{len(idle)} tensors are frozen at their random start, such as {idle[0]}; "
            "add them to trainable=, or give weights for them (init=)"
        )


def _write_records(
    session: Session,
    machine: Machine,
    deployment: Deployment,
    start: dict[str, Any],
    advice: list[dict[str, Any]],
) -> None:
    """All that is decided, before the first step."""
    folder, task_data = session.folder, session.task_data
    try:
        write_text(folder / "config.yaml", to_yaml(session.config))
    except OSError as error:
        raise UsageError(f"out={folder}: cannot be written to: {error.strerror}") from None
    write_json(folder / "plan.json", deployment.plan.tree())
    write_json(folder / "hardware.json", machine.tree())
    write_json(
        folder / "data_report.json", {**task_data.report(), "digest": task_data.digest(), "advice": advice}
    )
    write_json(folder / "placement.json", placement(deployment.plan, session.task.network))
    if not (folder / "init.json").is_file():  # how a run began stays true however often it goes on
        write_json(folder / "init.json", start)
