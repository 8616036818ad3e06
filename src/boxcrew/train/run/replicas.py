"""Runs of several replicas: the chief decides everything and tells the others, who do the same steps."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

from boxcrew.core.errors import DataError
from boxcrew.core.units import counted
from boxcrew.deploy.deployment import deploy
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.environments import process_name
from boxcrew.deploy.strategies.parameter_server.server import Server
from boxcrew.plan.plan import Plan
from boxcrew.tasks.base import TASKS
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint, shared
from boxcrew.train.loop.hooks.stop import left_to_others
from boxcrew.train.loop.optim import optimizer_of
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import load_task_data
from boxcrew.train.run.session import Session


def tell_others(session: Session, plan: Plan, past: Checkpoint | None, group: ReplicaGroup) -> None:
    """All that the other replicas need."""
    if plan.num_processes == 1:
        return
    group.broadcast_json(
        {
            "folder": str(session.folder.resolve()),
            "config": session.config.tree(),
            "plan": plan.tree(),
            "data": session.task_data.digest(),
            "facts": session.task_data.facts,
            "goes_on": past is not None,
        }
    )
    if past is not None:
        shared(past, group)


def track(group: ReplicaGroup, screen: Screen) -> None:
    """Works for the chief until the run ends. All that is written is a log."""
    told = group.broadcast_json(None)
    config, plan, folder = RunConfig.of(told["config"]), Plan.of(told["plan"]), Path(told["folder"])
    _open_log(screen, folder, f"replica_{group.rank}")
    try:
        task_data = load_task_data(config, workers=1, screen=screen)
        if task_data.digest() != told["data"]:
            raise DataError(
                f"{config.data.path}: is not the data that the chief has", advice="has it changed just now?"
            )
        torch.manual_seed(config.seed)
        task = task_data.task()
        session = Session.of(config, plan, task_data, task=task, folder=folder, screen=screen)
        past = shared(None, group) if told["goes_on"] else None
        with deploy(plan, group=group) as deployment:
            session.track(deployment, past)
    finally:
        screen.close_log()


def _open_log(screen: Screen, folder: Path, name: str) -> None:
    """On another host there may be no such directory yet; where none can be made, nothing is logged."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        screen.open_log(folder / f"{name}.log")


def serve(group: ReplicaGroup, screen: Screen) -> None:
    """Keeps parameters for the replicas until they end: of the run a parameter server needs no more than what
    the parameters are, and the optimizer.
    """
    told = group.broadcast_json(None)
    config, plan, folder = RunConfig.of(told["config"]), Plan.of(told["plan"]), Path(told["folder"])
    name = process_name(group.rank, group.size)
    _open_log(screen, folder, name)
    try:
        task = TASKS.get(config.task.name).build(config.task, told["facts"])
        server = Server(plan, group, task, optimizer_of(task, config.optim))
        screen.say(f"{name}: keeps {counted(server.num_kept, 'tensor')}")
        with left_to_others():
            server.run()
        screen.say(f"{name}: the replicas have ended")
    finally:
        screen.close_log()
