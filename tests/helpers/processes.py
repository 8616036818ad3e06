"""Replicas in real processes, over gloo."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing as processes

from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.processes.collectives import DistributedGroup
from boxcrew.deploy.processes.environments import ProcessEnvironment
from boxcrew.plan.plan import Plan
from tests.helpers import forked  # noqa: F401 - says what processes have imported when they begin


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


Work = Callable[[Deployment, Path], None]
"""The work of a replica in its deployment; it saves its results in a file."""


def run_replica(rank: int, plan: Plan, port: int, work: Work, folder: Path) -> None:
    """Run one replica, in the process that calls this."""
    _run_process(rank, plan, port, partial(_deployed, plan, work), folder)


def _deployed(plan: Plan, work: Work, group: DistributedGroup, file: Path) -> None:
    with deploy(plan, group=group) as deployment:
        work(deployment, file)


def _run_process(
    rank: int, plan: Plan, port: int, work: Callable[[DistributedGroup, Path], None], folder: Path
) -> None:
    torch.set_num_threads(1)
    group = DistributedGroup(
        ProcessEnvironment(rank=rank, world_size=plan.num_processes, port=port), num_servers=plan.servers
    )
    work(group, folder / f"{rank}.pt")
    group.close()


def in_processes(plan: Plan, work: Work, folder: Path) -> list[Any]:
    """Return the results that each replica has saved in its file."""
    return in_all_processes(plan, partial(_deployed, plan, work), folder)


def in_all_processes(plan: Plan, work: Callable[[DistributedGroup, Path], None], folder: Path) -> list[Any]:
    """Return the results of all processes, servers too; `work` makes its own deployment."""
    processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        _run_process,
        args=(plan, free_port(), work, folder),
        nprocs=plan.num_processes,
        start_method="forkserver",
    )
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(plan.num_processes)]
