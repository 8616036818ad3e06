"""Whether this process is one replica of several that somebody started, and which: as the environment tells.

torchrun, Kubernetes and most cluster tools set RANK and its companions; SLURM and MPI have their own words.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from boxcrew.core.errors import UsageError

_PORTS = range(20_000, 32_768)  # below those that Linux hands out itself
_HERE = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class ProcessEnvironment:
    """A replica's place among all."""

    rank: int  # 0 is the chief
    size: int  # replicas in all
    address: str = _HERE  # where all can meet
    port: int = 0
    hosted: bool = False  # whether somebody keeps the meeting place; else the chief does
    attempt: str = "0"  # which start of the same job this is: what earlier ones left at the place is not ours


def process_name(rank: int, num_replicas: int) -> str:
    """In the classic words: replicas come first, parameter servers after them."""
    return f"replica {rank}" if rank < num_replicas else f"ps_{rank - num_replicas}"


def read_environment(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """None for a process that stands alone."""
    for read in (_torchrun, _slurm, _mpi):
        env = read(environment)
        if env is not None:
            return env if env.size > 1 else None
    return None


def _torchrun(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if environment["WORLD_SIZE"] != "1" and name not in environment:
            raise UsageError(
                f"RANK={environment['RANK']} is set, but not {name}",
                advice="start with torchrun, or unset RANK to train in this process alone",
            )
    return _seat(
        environment,
        rank="RANK",
        size="WORLD_SIZE",
        address=environment.get("MASTER_ADDR", _HERE),
        job=environment.get("MASTER_PORT", ""),
    )


def _slurm(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Of a step that `srun` started: a batch script itself has a rank too, but no such step."""
    if "SLURM_STEP_NUM_TASKS" not in environment:
        return None
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or _HERE
    return _seat(
        environment,
        rank="SLURM_PROCID",
        size="SLURM_STEP_NUM_TASKS",
        address=environment.get("MASTER_ADDR", first_host(hosts)),
        job=f"{environment.get('SLURM_JOB_ID')}.{environment.get('SLURM_STEP_ID')}",
    )


def _mpi(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    for words in _MPI:
        if words.rank in environment:
            size = environment.get(words.size, "")
            one_host = environment.get(words.local_size, size) == size
            return _seat(
                environment,
                rank=words.rank,
                size=words.size,
                address=_mpi_address(environment, one_host=one_host),
                job=environment.get(words.job, "mpi"),
            )
    return None


class _MpiWords(NamedTuple):
    """How an implementation calls what every process must know."""

    rank: str
    size: str
    local_size: str
    job: str


_MPI = (
    _MpiWords("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"),
    _MpiWords("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"),  # MPICH and Intel's MPI
)


def _mpi_address(environment: Mapping[str, str], *, one_host: bool) -> str:
    """MPI does not tell where the first process is."""
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    if not one_host:
        raise UsageError(
            "several hosts under MPI, and MASTER_ADDR is not set",
            advice="set MASTER_ADDR (and MASTER_PORT) to the first host on all: mpirun -x MASTER_ADDR=…",
        )
    return _HERE


def _seat(
    environment: Mapping[str, str], *, rank: str, size: str, address: str, job: str
) -> ProcessEnvironment:
    """`job` is something that all processes of it, and few others, have in common."""
    numbers = {}
    for name in (rank, size):
        text = environment.get(name, "")
        if not text.isdigit():
            raise UsageError(f"{name}={text}: not a number")
        numbers[name] = int(text)
    if numbers[rank] >= numbers[size]:
        raise UsageError(f"{rank}={numbers[rank]}: there are only {numbers[size]} replicas ({size})")
    given = environment.get("MASTER_PORT", "")
    if given and not (given.isdigit() and 0 < int(given) < 65_536):
        raise UsageError(f"MASTER_PORT={given}: not a port")
    port = int(given) if given else _PORTS[zlib.crc32(job.encode()) % len(_PORTS)]
    hosted = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return ProcessEnvironment(
        rank=numbers[rank], size=numbers[size], address=address, port=port, hosted=hosted, attempt=attempt
    )


def first_host(hosts: str) -> str:
    """Of SLURM's short form: `node[03-06,9],big1` begins with node03."""
    found = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", hosts)
    return "".join(part or "" for part in found.groups()) if found else hosts
