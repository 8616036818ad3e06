"""The settings of `boxcrew submit`: what the cluster has, and what it asks of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.train.config import Duration


def _range(value: object) -> object:
    """Read `4` or `1:4`."""
    if not isinstance(value, str):
        return value
    first, colon, last = value.partition(":")
    if not first.isdigit() or (colon and not last.isdigit()):
        raise UsageError(f"submit.nodes={value}: not a number of nodes", advice="write 4, or 1:4 for 1 to 4")
    least, most = int(first), int(last or first)
    if not 1 <= least <= most:
        raise UsageError(f"submit.nodes={value}: the first number must be at least 1, and not the larger one")
    return least, most


Nodes = Annotated[
    tuple[int, int],
    BeforeValidator(_range),
    PlainSerializer(lambda nodes: f"{nodes[0]}:{nodes[1]}" if nodes[0] < nodes[1] else str(nodes[0])),
]


class SubmitConfig(Config, group="submit"):
    nodes: Nodes = (1, 1)
    """Machines of the job, such as 2; or 1:4 for as many as there are, between the two (slurm and rayjob)."""
    node: str | None = None
    """One of these machines, such as "2x24GB-gpu, 16 cores, 64GB" or a file of `boxcrew devices --json`; none is
    like this one."""
    data: str | None = None
    """Where the job finds the data, if not where it is here."""
    time: Duration | None = None
    """Longest time of one start of the job, for slurm; it goes on in the next. None is the predicted one."""
    partition: str | None = None
    """Partition of SLURM."""
    account: str | None = None
    """Account of SLURM."""
    setup: str | None = None
    """Line of shell that runs before the training, such as `. venv/bin/activate`; for slurm and sky."""
    image: str | None = None
    """Container image that has boxcrew, for jobset and rayjob (and sky, if wanted)."""
    volume: str | None = None
    """Claim of a volume and where it is mounted, such as photos:/data, for jobset and rayjob."""
    namespace: str | None = None
    """Namespace of Kubernetes."""
    gpu: str | None = None
    """Name of the GPU as SkyPilot calls it, such as A100."""
    spot: bool = True
    """Take spot machines, for sky."""
    restarts: int = Field(default=10, ge=0)
    """Times that a failed job is begun again; being told to leave does not count."""
    file: Path | None = None
    """File to write; none: a new one here, with the name of the run."""
