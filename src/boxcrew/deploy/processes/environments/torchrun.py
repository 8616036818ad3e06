"""The variables that torchrun sets, and with it Kubernetes and most cluster tools."""

from __future__ import annotations

from collections.abc import Mapping

from boxcrew.core.errors import UsageError
from boxcrew.deploy.processes.environments._base import ProcessEnvironment, read_variables


def read_torchrun(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if environment["WORLD_SIZE"] != "1" and name not in environment:
            raise UsageError(
                f"RANK={environment['RANK']} is set, but not {name}",
                advice="start with torchrun, or unset RANK to train in this process alone",
            )
    return read_variables(environment, rank="RANK", size="WORLD_SIZE")
