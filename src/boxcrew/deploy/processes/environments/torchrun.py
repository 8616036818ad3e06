"""Processes started by torchrun, Kubernetes, or any tool that sets RANK, WORLD_SIZE and MASTER_ADDR."""

from __future__ import annotations

from collections.abc import Mapping

from boxcrew.core.errors import UsageError
from boxcrew.deploy.processes.environments._base import LOCALHOST, ProcessEnvironment


def read_torchrun(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Return the process's environment, or None if RANK or WORLD_SIZE is not set."""
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if environment["WORLD_SIZE"] != "1" and name not in environment:
            raise UsageError(
                f"RANK={environment['RANK']} is set, but not {name}",
                advice="start with torchrun, or unset RANK to train in this process alone",
            )
    return ProcessEnvironment.read(
        environment,
        rank="RANK",
        size="WORLD_SIZE",
        address=environment.get("MASTER_ADDR", LOCALHOST),
        job=environment.get("MASTER_PORT", ""),
    )
