"""The rank of this process and where it finds the others, from the launcher's environment variables.

One file per launcher: `torchrun` (also Kubernetes and most cluster tools, which set RANK and its companions),
`slurm` and `mpi`. Each reads the variables into a `ProcessEnvironment`, or returns None if they are not set.
"""

from __future__ import annotations

from collections.abc import Mapping

from boxcrew.deploy.processes.environments._base import ProcessEnvironment, process_name
from boxcrew.deploy.processes.environments.mpi import read_mpi
from boxcrew.deploy.processes.environments.slurm import read_slurm
from boxcrew.deploy.processes.environments.torchrun import read_torchrun

__all__ = ["ProcessEnvironment", "process_name", "read_environment"]


def read_environment(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Return this process's rank and rendezvous, or None for a process that was started alone."""
    for read in (read_torchrun, read_slurm, read_mpi):
        env = read(environment)
        if env is not None:
            return env if env.size > 1 else None
    return None
