"""Replicas in real processes, over gloo."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import multiprocessing as processes

from boxcrew.deploy.deployment import Deployment, deploy
from boxcrew.deploy.group import Processes
from boxcrew.deploy.seat import Seat
from boxcrew.plan.plan import Plan


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# What takes long to import is there before a process is begun.
processes.set_forkserver_preload(
    ["boxcrew.testing.learning", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.export"]
)

Work = Callable[[Deployment, Path], None]


def run_replica(rank: int, one: Plan, port: int, work: Work, folder: Path) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    others = Processes(Seat(rank=rank, size=len(one.replicas), port=port))
    with deploy(one, group=others) as deployment:
        work(deployment, folder / f"{rank}.pt")
    others.close()


def in_processes(one: Plan, work: Work, folder: Path) -> list[Any]:
    """What each replica has left in its file."""
    processes.start_processes(  # type: ignore[attr-defined,no-untyped-call]
        run_replica,
        args=(one, free_port(), work, folder),
        nprocs=len(one.replicas),
        start_method="forkserver",
    )
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(len(one.replicas))]
