"""The other processes of a run: replicas that train the chief's steps, and parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from boxcrew.core.errors import DataError
from boxcrew.core.types import Batch
from boxcrew.core.units import counted
from boxcrew.core.version import VERSION
from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.environments import process_name
from boxcrew.deploy.processes.membership import LeftError
from boxcrew.deploy.strategies.parameter_server.server import ParameterServerProcess
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import TASKS
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint, broadcast_checkpoint
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.hooks.mixing import LastUnmixed
from boxcrew.train.loop.hooks.progress import SkippedReport
from boxcrew.train.loop.hooks.stop import GRACE, StopOnSignal, ignore_stop_signals
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import load_task_data
from boxcrew.train.run.setup import RunSetup


def broadcast_session(
    setup: RunSetup, plan: Plan, checkpoint: Checkpoint | None, group: ReplicaGroup, *, is_last: bool
) -> None:
    """Send the other processes all that they need. Only the chief may call it.

    After a session that is not the last, replicas wait for the next, or for `end_replicas`.
    """
    if plan.num_processes == 1:
        return
    group.broadcast_json({**session_tree(setup, plan, is_last=is_last), "resumes": checkpoint is not None})
    if checkpoint is not None:
        broadcast_checkpoint(checkpoint, group)


def session_tree(setup: RunSetup, plan: Plan, *, is_last: bool) -> dict[str, Any]:
    """Return what another process must know to take part in a session, as JSON values."""
    return {
        "version": versions(),
        "folder": str(setup.folder.resolve()),
        "config": setup.config.tree(),
        "plan": plan.tree(),
        "num_clones": len(plan.clones),
        "data": setup.task_data.digest(),
        "facts": setup.task_data.facts.to_json(),
        "is_last": is_last,
    }


def versions() -> str:
    """Return what must be the same on all hosts, or they would not compute the same."""
    return f"boxcrew {VERSION}, torch {torch.__version__}"


def end_replicas(group: ReplicaGroup) -> None:
    """Let the other replicas end, which wait for a session. Only the chief may call it."""
    group.broadcast_json(None)


def train_replica(group: ReplicaGroup, screen: Screen) -> bool:
    """Train as a replica that is not the chief, until the run ends. Nothing is written but logs. Return
    whether it has ended because some replicas were preempted.
    """
    return _train_sessions(group.broadcast_json(None), group, screen, joins=False)


def join_training(session: Mapping[str, Any], group: ReplicaGroup, screen: Screen) -> bool:
    """Train as a replica that joins others in the middle of a session, once everything is prepared. Return
    whether the run has ended because some replicas were preempted.
    """
    return _train_sessions(session, group, screen, joins=True)


def _train_sessions(
    received: Mapping[str, Any] | None, group: ReplicaGroup, screen: Screen, *, joins: bool
) -> bool:
    preempted = False
    while received is not None:
        preempted = _train_session(received, group, screen, joins=joins)
        if received["is_last"]:
            return preempted
        joins = False
        with ignore_stop_signals():  # the chief decides: it may be solving a stage
            received = group.broadcast_json(None)
    return preempted


def _train_session(received: Mapping[str, Any], group: ReplicaGroup, screen: Screen, *, joins: bool) -> bool:
    config, plan = RunConfig.of(received["config"]), Plan.of(received["plan"])
    folder = Path(received["folder"])
    _open_log(screen, folder, f"replica_{group.member or group.rank}")
    try:
        task_data = load_task_data(config, workers=1, screen=screen)
        if task_data.digest() != received["data"]:
            raise DataError(
                f"{config.data.path}: differs from the data of replica 0",
                advice="give all hosts the same data",
            )
        torch.manual_seed(config.seed)
        task = task_data.task()
        setup = RunSetup.of(config, plan, task_data, task=task, folder=folder, screen=screen)
        if joins:  # everything is prepared alone, so that the others need not wait
            with deploy(plan.with_replicas(1)) as deployment:
                return _train(setup, deployment, None, joins=group)
        checkpoint = broadcast_checkpoint(None, group) if received["resumes"] else None
        with deploy(plan, group=group) as deployment:
            return _train(setup, deployment, checkpoint)
    finally:
        screen.close_log()


def _train(
    setup: RunSetup,
    deployment: Deployment,
    checkpoint: Checkpoint | None,
    *,
    joins: ReplicaGroup | None = None,
) -> bool:
    """Train the same steps as the chief, without evaluations, summaries or files. Return whether some
    replicas were preempted. A replica that `joins` a group enters it when everything is prepared.
    """
    deployment.setup_module(setup.task)
    plan = deployment.plan
    task_data = setup.cached_data(plan.cache_bytes)
    stop = StopOnSignal(setup.screen, grace=GRACE)
    # Where parameters are sharded, so is their average: then every replica keeps its shard.
    averages = () if deployment.has_full_state else (Ema(setup.task, decay=setup.config.optim.ema),)
    workers = setup.workers(plan, plan.loader_workers)

    def batches(deployment: Deployment, mixed_steps: int | None) -> Callable[[int], Iterator[Batch]]:
        return setup.batches(deployment, task_data, lambda: workers, mixed_steps=mixed_steps)

    unmixed = LastUnmixed(setup.limits, task_data.mixed_fraction, batches=batches)
    hooks = (*averages, unmixed, stop, SkippedReport(setup.screen))
    trainer = setup.trainer(deployment, hooks, lambda _: None, checkpoint)
    if joins is not None:
        joins.ask()
        deployment.regroup(joins)
    try:
        trainer.fit(batches(deployment, unmixed.mixed_steps), joins=joins is not None)
        trainer.serve_commands()
    except LeftError:
        setup.screen.info(f"left after step {trainer.step}")
        raise
    finally:
        stop.restore()
    setup.screen.info(f"ended after step {trainer.step}: {trainer.stop_reason or 'the run is over'}")
    return bool(trainer.preempted)


def _open_log(screen: Screen, folder: Path, name: str) -> None:
    """Open a log in the run directory, which another host may not have yet. Without one nothing is logged."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        screen.open_log(folder / f"{name}.log")


def run_parameter_server(group: ReplicaGroup, screen: Screen) -> None:
    """Keep parameters as a parameter server until the replicas end. It needs the task and the optimizer, but
    no data.
    """
    received = group.broadcast_json(None)
    config, plan = RunConfig.of(received["config"]), Plan.of(received["plan"])
    name = process_name(group.rank, group.num_replicas)
    _open_log(screen, Path(received["folder"]), name)
    try:
        kind = TASKS.get(config.task.name)
        task = kind.build(config.task, kind.facts_class.from_json(received["facts"]))
        server = ParameterServerProcess(plan, group, task, optimizer_of(task, config.optim))
        screen.info(f"{name}: keeps {counted(server.num_kept, 'tensor')}")
        with ignore_stop_signals():
            server.run()
        screen.info(f"{name}: the replicas have ended")
    finally:
        screen.close_log()
