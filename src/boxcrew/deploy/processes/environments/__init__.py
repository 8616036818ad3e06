"""The rank of this process and where it finds the others, from the launcher's environment variables.

One file per launcher: `torchrun` (also Kubernetes and most cluster tools, which set RANK and its companions),
`slurm` and `mpi`. Each reads the variables into a `ProcessEnvironment`, or returns None if they are not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from boxcrew.core.parent_process import MEMBER
from boxcrew.deploy.processes.environments._base import (
    LOCALHOST,
    ProcessEnvironment,
    host_and_port,
    process_name,
)
from boxcrew.deploy.processes.environments.mpi import read_mpi
from boxcrew.deploy.processes.environments.slurm import first_host, read_slurm
from boxcrew.deploy.processes.environments.torchrun import read_torchrun

__all__ = [
    "LOCALHOST",
    "ProcessEnvironment",
    "first_host",
    "host_and_port",
    "process_name",
    "read_environment",
]


def read_environment(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Return this process's rank and rendezvous, or None for a process that was started alone."""
    env = read_torchrun(environment) or read_slurm(environment) or read_mpi(environment)
    is_elastic = MEMBER in environment  # others may join it
    return env if env is not None and (env.world_size > 1 or is_elastic) else None
