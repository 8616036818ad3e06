"""The settings of `boxcrew submit`: what the cluster has, and what it asks of a job."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.plan.request import Count, ReplicaRange, ReplicaRangeSetting
from boxcrew.train.config import Duration


class SubmitConfig(Config, group="submit"):
    nodes: Count | ReplicaRangeSetting = 1
    """Machines of the job, such as 2; or 1:4 for as many as there are, between the two (slurm and rayjob)."""
    node: str | None = None
    """One of them, such as "2x24GB-gpu, 16 cores, 64GB" or a file of `boxcrew devices --json`; none is like
    this one."""
    data: str | None = None
    """Where the job finds the data, if not where it is here."""
    time: Duration | None = None
    """Longest time of one start of the job, for slurm; the next continues the run. None: as predicted."""
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
    """Restarts of a failed job, at most; a preemption does not count."""
    file: Path | None = None
    """File to write; none: a new one here, with the name of the run."""

    @property
    def node_range(self) -> ReplicaRange:
        """The fewest and the most nodes."""
        return self.nodes if isinstance(self.nodes, ReplicaRange) else ReplicaRange(self.nodes, self.nodes)
