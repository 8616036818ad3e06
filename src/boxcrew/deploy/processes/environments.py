"""The rank of this process and where it finds the others, from the launcher's environment variables.

The launchers are torchrun (also Kubernetes and most cluster tools, which set RANK and its companions),
SLURM's `srun`, and `mpirun` of Open MPI, MPICH or Intel MPI.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from boxcrew.core.errors import UsageError

LOCALHOST = "127.0.0.1"
_PORTS = range(20_000, 32_768)  # below those that Linux assigns by itself
_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"),  # MPICH and Intel MPI
)
"""The variables of rank, size, processes on this host, and job."""


@dataclass(frozen=True, kw_only=True)
class ProcessEnvironment:
    """The rank of one process, and where it finds the others."""

    rank: int  # 0 is the chief
    size: int  # processes in all
    address: str = LOCALHOST  # of the rendezvous
    port: int = 0
    hosted: bool = False  # whether the launcher runs the rendezvous store; else the chief does
    attempt: str = "0"  # number of restarts of the job: what earlier attempts left in the store is ignored


def read_environment(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Return this process's rank and rendezvous, or None for a process that was started alone."""
    env = _read_torchrun(environment) or _read_slurm(environment) or _read_mpi(environment)
    return env if env is not None and env.size > 1 else None


def _read_torchrun(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if environment["WORLD_SIZE"] != "1" and name not in environment:
            raise UsageError(
                f"RANK={environment['RANK']} is set, but not {name}",
                advice="start with torchrun, or unset RANK to train in this process alone",
            )
    return _read(environment, rank="RANK", size="WORLD_SIZE")


def _read_slurm(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Return None outside `srun`: a batch script has a rank, but no step."""
    if "SLURM_STEP_NUM_TASKS" not in environment:
        return None
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or LOCALHOST
    job = f"{environment.get('SLURM_JOB_ID')}.{environment.get('SLURM_STEP_ID')}"
    names = {"rank": "SLURM_PROCID", "size": "SLURM_STEP_NUM_TASKS"}
    return _read(environment, **names, address=first_host(hosts), job=job)


def first_host(hosts: str) -> str:
    """Return the first host of a SLURM node list: `node03` for `node[03-06,9],big1`."""
    match = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", hosts)
    return "".join(group or "" for group in match.groups()) if match else hosts


def _read_mpi(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    for rank, size, local_size, job in _MPI:
        if rank in environment:
            num = environment.get(size, "")
            several = environment.get(local_size, num) != num
            if several and "MASTER_ADDR" not in environment:  # MPI does not tell the first host
                raise UsageError(
                    "several hosts under MPI, and MASTER_ADDR is not set",
                    advice="set MASTER_ADDR (and MASTER_PORT) to the first host: mpirun -x MASTER_ADDR=…",
                )
            return _read(environment, rank=rank, size=size, job=environment.get(job, "mpi"))
    return None


def _read(
    environment: Mapping[str, str], *, rank: str, size: str, address: str = LOCALHOST, job: str = ""
) -> ProcessEnvironment:
    """Read the variables named `rank` and `size`. `address` is the rendezvous unless MASTER_ADDR names it.

    `job` is a text that all processes of a job, and few others, have in common; without MASTER_PORT it
    decides the port.
    """
    for name in (rank, size):
        if not environment.get(name, "").isdigit():
            raise UsageError(f"{name}={environment.get(name, '')}: not a number")
    own, num = int(environment[rank]), int(environment[size])
    if own >= num:
        raise UsageError(f"{rank}={own}: there are only {num} replicas ({size})")
    port = environment.get("MASTER_PORT", "")
    if port and not (port.isdigit() and 0 < int(port) < 65_536):
        raise UsageError(f"MASTER_PORT={port}: not a port")
    return ProcessEnvironment(
        rank=own,
        size=num,
        address=environment.get("MASTER_ADDR", address),
        port=int(port) if port else _PORTS[zlib.crc32(job.encode()) % len(_PORTS)],
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )


def process_name(rank: int, num_replicas: int) -> str:
    """Return `replica 2` or `ps_0`: replicas have the first ranks, parameter servers the ones after them."""
    return f"replica {rank}" if rank < num_replicas else f"ps_{rank - num_replicas}"
