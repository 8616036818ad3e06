"""The variables that SLURM's `srun` sets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from boxcrew.deploy.processes.environments._base import LOCALHOST, ProcessEnvironment, read_variables


def read_slurm(environment: Mapping[str, str]) -> ProcessEnvironment | None:
    """Return None outside `srun`: a batch script has a rank, but no step."""
    if "SLURM_STEP_NUM_TASKS" not in environment:
        return None
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or LOCALHOST
    job = f"{environment.get('SLURM_JOB_ID')}.{environment.get('SLURM_STEP_ID')}"
    names = {"rank": "SLURM_PROCID", "size": "SLURM_STEP_NUM_TASKS"}
    return read_variables(environment, **names, address=first_host(hosts), job=job)


def first_host(hosts: str) -> str:
    """Return the first host of a SLURM node list: `node03` for `node[03-06,9],big1`."""
    match = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", hosts)
    return "".join(group or "" for group in match.groups()) if match else hosts
