"""Processes started by `mpirun` of Open MPI, MPICH or Intel MPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from boxcrew.core.errors import UsageError
from boxcrew.deploy.processes.environments._base import LOCALHOST, ProcessEnvironment


class _Variables(NamedTuple):
    """The names that one implementation of MPI gives its environment variables."""

    rank: str
    size: str
    local_size: str
    job: str


_IMPLEMENTATIONS = (
    _Variables(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"
    ),
    _Variables("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"),  # MPICH and Intel MPI
)


def read_mpi(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Return the process's environment, or None if no implementation of MPI has set a rank."""
    for names in _IMPLEMENTATIONS:
        if names.rank in environment:
            size = environment.get(names.size, "")
            one_host = environment.get(names.local_size, size) == size
            if not one_host and "MASTER_ADDR" not in environment:  # MPI does not tell the first host
                raise UsageError(
                    "several hosts under MPI, and MASTER_ADDR is not set",
                    advice="set MASTER_ADDR (and MASTER_PORT) to the first host: mpirun -x MASTER_ADDR=…",
                )
            return ProcessEnvironment.read(
                environment,
                rank=names.rank,
                size=names.size,
                address=environment.get("MASTER_ADDR", LOCALHOST),
                job=environment.get(names.job, "mpi"),
            )
    return None
