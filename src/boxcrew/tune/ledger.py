"""The ledger of a study: what was decided and what came of it, one line of `events.jsonl` each.

A line is on disk before anything is done because of it. A study that was killed reads the lines again, and
continues the trainings that have started and not ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from boxcrew.core.config import Config
from boxcrew.core.errors import ModelError
from boxcrew.core.files import append, flush, write_text

EVENTS = "events.jsonl"


class TrialDrawn(Config):
    """A new trial, with the settings that the sampler has drawn; none for trial 0."""

    event: Literal["asked"] = "asked"
    trial: int
    params: dict[str, Any]  # as Optuna stores them
    settings: dict[str, Any]  # by dotted keys
    rungs: tuple[int, ...]  # steps after which it is compared
    bracket: int  # the first rung after which it may be stopped


class TrainingStarted(Config):
    """A training that is started or continued, up to a rung."""

    event: Literal["begun"] = "begun"
    job: int
    trial: int
    rung: int
    repeat: int | None = None  # of the recipe with another seed, which is no trial
    slot: int
    begins: float  # as planned, in steps of the recipe; a repeat has no place in the plan
    ends: float

    def length(self, rungs: Sequence[int]) -> float:
        """Return its length in steps of the recipe."""
        return self.ends - self.begins if self.repeat is None else float(rungs[-1])


class TrainingEnded(Config):
    """The end of such a training, as planned or not."""

    event: Literal["ended"] = "ended"
    job: int
    value: float | None = None  # the best evaluation so far; None with no failure: the time was over first
    failure: str | None = None
    seconds: float = 0.0  # of its process
    at: float  # seconds that the study has run


class SearchStopped(Config):
    """The end of the search: from here on nothing new is tried."""

    event: Literal["stopped"] = "stopped"
    reason: str
    at: float


class StudyFinished(Config):
    """The end of the study: the best trial is known and was tested."""

    event: Literal["finished"] = "finished"
    at: float


Event = TrialDrawn | TrainingStarted | TrainingEnded | SearchStopped | StudyFinished
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


@dataclass(eq=False, kw_only=True)
class Trial:
    """A trial with all its results so far."""

    asked: TrialDrawn
    begun: int = -1  # the highest rung that a training of it was begun for
    values: dict[int, float] = field(default_factory=dict)  # by rung
    failure: str | None = None

    @property
    def number(self) -> int:
        return self.asked.trial

    @property
    def rung(self) -> int:
        """The highest rung that it has reached; -1 if none."""
        return max(self.values, default=-1)

    @property
    def is_complete(self) -> bool:
        return self.rung == len(self.asked.rungs) - 1


@dataclass(eq=False, kw_only=True)
class Ledger:
    """All events of a study. `trials` and `jobs` are what follows from them."""

    folder: Path
    trials: list[Trial] = field(default_factory=list)
    jobs: list[TrainingStarted] = field(default_factory=list)
    ends: dict[int, TrainingEnded] = field(default_factory=dict)  # by job
    stopped: SearchStopped | None = None
    num_searched: int = 0  # jobs before the search was stopped
    is_finished: bool = False
    at: float = 0.0  # seconds that the study has run, at the last event

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Read the events of a study, which another process may be writing. A last line that is cut off has
        had no effect yet.
        """
        ledger, file = cls(folder=folder), folder / EVENTS
        for number, line in enumerate(_whole_lines(file).splitlines(), start=1):
            try:
                ledger.apply(_EVENT.validate_python(json.loads(line)))
            except (ValueError, ValidationError, LookupError):
                raise ModelError(
                    f"{file}: line {number} is damaged", advice="start a new study; the runs in it are whole"
                ) from None
        return ledger

    @classmethod
    def reopen(cls, folder: Path) -> Ledger:
        """Read the events of a study that no other process has, to add more. What a kill has cut off is
        removed.
        """
        ledger, file = cls.read(folder), folder / EVENTS
        if file.is_file():
            write_text(file, _whole_lines(file))
        return ledger

    def add(self, event: Event) -> None:
        """Write an event to the disk, and take it into account."""
        append(self.folder / EVENTS, json.dumps(event.tree()) + "\n")
        flush(self.folder / EVENTS)
        self.apply(event)

    def running(self) -> list[TrainingStarted]:
        """Return the trainings that have begun and not ended."""
        return [job for job in self.jobs if job.job not in self.ends]

    def visible(self, time: float) -> list[Trial]:
        """Return the trials as they were planned to be at a time, which does not depend on the clock."""
        trials = [Trial(asked=trial.asked, begun=trial.begun) for trial in self.trials]
        for job, end in self._ended():
            if job.ends <= time and job.repeat is None:
                _note(trials[job.trial], job, end)
        return trials

    def missing_repeats(self, most: int) -> list[int]:
        """Return the numbers of the recipe's repeats that have not begun."""
        begun = {job.repeat for job in self.jobs}
        return [number for number in range(1, most + 1) if number not in begun]

    def repeats(self) -> dict[int, TrainingEnded]:
        """Return the ends of the recipe's repeats, by their number."""
        return {job.repeat: end for job, end in self._ended() if job.repeat is not None}

    def _ended(self) -> Iterator[tuple[TrainingStarted, TrainingEnded]]:
        return ((job, self.ends[job.job]) for job in self.jobs if job.job in self.ends)

    def apply(self, event: Event) -> None:
        """Take an event into account, without writing it."""
        match event:
            case TrialDrawn():
                self.trials.append(Trial(asked=event))
            case TrainingStarted():
                self.jobs.append(event)
                if event.repeat is None:
                    self.trials[event.trial].begun = event.rung
            case TrainingEnded():
                job = self.jobs[event.job]
                self.ends[event.job] = event
                if job.repeat is None:
                    _note(self.trials[job.trial], job, event)
            case SearchStopped():
                self.stopped, self.num_searched = event, len(self.jobs)
            case StudyFinished():
                self.is_finished = True
        if isinstance(event, TrainingEnded | SearchStopped | StudyFinished):
            self.at = event.at


def _note(trial: Trial, job: TrainingStarted, end: TrainingEnded) -> None:
    trial.failure = end.failure
    if end.value is not None:
        trial.values[job.rung] = end.value


def _whole_lines(file: Path) -> str:
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return text[: text.rfind("\n") + 1]
