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


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# What takes long to import is there before a process is begun.
processes.set_forkserver_preload(
    ["tests.helpers.learning", "timm", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.export"]
)

Work = Callable[[Deployment, Path], None]
"""What a replica does in its deployment; it leaves what it found in a file."""


def run_replica(rank: int, one: Plan, port: int, work: Work, folder: Path) -> None:
    """In a process of its own."""
    _run_process(rank, one, port, partial(_deployed, one, work), folder)


def _deployed(one: Plan, work: Work, others: DistributedGroup, file: Path) -> None:
    with deploy(one, group=others) as deployment:
        work(deployment, file)


def _run_process(
    rank: int, one: Plan, port: int, work: Callable[[DistributedGroup, Path], None], folder: Path
) -> None:
    torch.set_num_threads(1)
    others = DistributedGroup(
        ProcessEnvironment(rank=rank, size=one.num_processes, port=port), num_servers=one.servers
    )
    work(others, folder / f"{rank}.pt")
    others.close()


def in_processes(one: Plan, work: Work, folder: Path) -> list[Any]:
    """What each replica has left in its file."""
    return in_all_processes(one, partial(_deployed, one, work), folder)


def in_all_processes(one: Plan, work: Callable[[DistributedGroup, Path], None], folder: Path) -> list[Any]:
    """The same with servers, and without a deployment."""
    processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        _run_process,
        args=(one, free_port(), work, folder),
        nprocs=one.num_processes,
        start_method="forkserver",
    )
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(one.num_processes)]
