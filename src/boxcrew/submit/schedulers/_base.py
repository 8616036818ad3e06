"""The contract of a scheduler's files, and the registry of all schedulers."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from boxcrew.core.errors import UsageError
from boxcrew.core.registry import Registry
from boxcrew.plan.request import ReplicaRange
from boxcrew.submit.resources import Resources
from boxcrew.submit.settings import SubmitConfig

GRACE = 60
"""Seconds between the notice that a job has to leave, and its end: for a step and a checkpoint."""
PORT = 29_400
"""The port at which replicas of several nodes find each other."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The wishes of the user, known before anything is planned."""

    settings: SubmitConfig
    words: tuple[str, ...]  # of `boxcrew train`, without data= and out=
    data: str  # as given here
    out: str

    @property
    def name(self) -> str:
        """The name of the run: the last part of its directory."""
        return self.out.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A training that is planned for the nodes of a cluster."""

    submission: Submission
    resources: Resources

    @property
    def settings(self) -> SubmitConfig:
        return self.submission.settings

    @property
    def replicas(self) -> ReplicaRange:
        """The fewest and the most replicas on all nodes."""
        least, most = self.settings.node_range
        return ReplicaRange(least * self.resources.replicas, most * self.resources.replicas)

    def command(self, data: str, *, states_replicas: bool = False) -> list[str]:
        """Return the words that train, on data where the job finds it; with the number of replicas if nodes
        come and go, or if the launcher does not know it.
        """
        own, (least, most) = self.submission, self.replicas
        words = list(own.words)
        if states_replicas or least < most:
            words = [word for word in words if not word.startswith("deploy.replicas=")]
            words.append(f"deploy.replicas={self.replicas if least < most else most}")
        return ["boxcrew", "train", *words, f"data={data}", f"out={own.out}"]


class Scheduler(ABC):
    """One kind of job file."""

    program: ClassVar[str]  # that submits it
    suffix: ClassVar[str]
    starts_replicas: ClassVar[bool] = False  # whether it starts them itself, also if there is one node
    is_elastic: ClassVar[bool] = False  # whether it can give a job a changing number of nodes

    @abstractmethod
    def check(self, submission: Submission) -> None:
        """Raise `UsageError` if it needs something that was not given."""

    @abstractmethod
    def text(self, job: PlannedJob) -> str:
        """Return the content of the file."""

    @abstractmethod
    def command(self, file: Path, settings: SubmitConfig) -> list[str]:
        """Return the words that submit the file."""


SCHEDULERS: Registry[Scheduler] = Registry("scheduler", "boxcrew.submit.schedulers")
"""All schedulers by name; one joins with `SCHEDULERS.register("slurm")(Slurm())`."""


def is_url(place: str) -> bool:
    return "://" in place


def quoted(words: Sequence[str]) -> str:
    """Return a command for a shell, with a setting on each line."""
    return " \\\n  ".join([shlex.join(words[:2]), *map(shlex.quote, words[2:])])


def require_reachable(place: str, key: str, advice: str) -> None:
    """Raise `UsageError` for a relative path: a job on another machine has no directory that it is in."""
    if not is_url(place) and not place.startswith("/"):
        raise UsageError(
            f"{key}={place}: a job on another machine needs an absolute path or a URL", advice=advice
        )
