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
            return ProcessEnvironment.read(
                environment,
                rank=names.rank,
                size=names.size,
                address=_address(environment, one_host=one_host),
                job=environment.get(names.job, "mpi"),
            )
    return None


def _address(environment: Mapping[str, str], *, one_host: bool) -> str:
    """Return the first process's host, which MPI itself does not tell."""
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    if not one_host:
        raise UsageError(
            "several hosts under MPI, and MASTER_ADDR is not set",
            advice="set MASTER_ADDR (and MASTER_PORT) to the first host on all: mpirun -x MASTER_ADDR=…",
        )
    return LOCALHOST
