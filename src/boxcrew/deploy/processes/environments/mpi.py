"""The variables that `mpirun` of Open MPI, MPICH or Intel MPI sets."""

from __future__ import annotations

from collections.abc import Mapping

from boxcrew.core.errors import UsageError
from boxcrew.deploy.processes.environments._base import ProcessEnvironment, read_variables

_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"),  # MPICH and Intel MPI
)
"""The variables of rank, size, processes on this host, and job."""


def read_mpi(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    for rank, size, local_size, job in _MPI:
        if rank in environment:
            num = environment.get(size, "")
            several = environment.get(local_size, num) != num
            if several and "MASTER_ADDR" not in environment:  # MPI does not tell the first host
                raise UsageError(
                    "several hosts under MPI, and MASTER_ADDR is not set",
                    advice="set MASTER_ADDR (and MASTER_PORT) to the first host: mpirun -x MASTER_ADDR=…",
                )
            return read_variables(environment, rank=rank, size=size, job=environment.get(job, "mpi"))
    return None
