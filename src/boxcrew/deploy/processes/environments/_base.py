"""The parts that all launchers share: the rank of a process, and where it finds the others."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from boxcrew.core.errors import UsageError

LOCALHOST = "127.0.0.1"
_PORTS = range(20_000, 32_768)  # below those that Linux assigns by itself


@dataclass(frozen=True, kw_only=True)
class ProcessEnvironment:
    """The rank of one process, and where it finds the others."""

    rank: int  # 0 is the chief
    world_size: int  # processes in all
    address: str = LOCALHOST  # of the rendezvous
    port: int = 0
    hosted: bool = False  # whether the launcher runs the rendezvous store; else the chief does
    job: str = ""  # its name, the same after a restart; jobs may share the launcher's store


def read_variables(
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
        world_size=num,
        address=environment.get("MASTER_ADDR", address),
        port=int(port) if port else _PORTS[zlib.crc32(job.encode()) % len(_PORTS)],
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        job=environment.get("TORCHELASTIC_RUN_ID", ""),
    )


def host_and_port(text: str, *, setting: str = "") -> tuple[str, int]:
    """Return the two parts of `HOST:PORT`; raise `UsageError` that begins with the setting if it is not."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) >= 65_536:
        raise UsageError(f"{setting}{text}: not HOST:PORT", advice="write it like 192.168.0.7:29500")
    return host, int(port)


def process_name(rank: int, num_replicas: int) -> str:
    """Return `replica 2` or `ps_0`: replicas have the first ranks, parameter servers the ones after them."""
    return f"replica {rank}" if rank < num_replicas else f"ps_{rank - num_replicas}"
