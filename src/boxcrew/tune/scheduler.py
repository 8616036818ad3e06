"""The decision which training starts next: a new trial, or one that continues to its next rung.

A decision depends on results alone, never on the clock. With several trainings at once it is made with the
results that were planned to be there (`Timeline`), in the order in which they were planned to come.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from boxcrew.tune.ledger import TrainingStarted, Trial
from boxcrew.tune.record import ETA, StudyRecord

ENOUGH = 5
"""Trials at a rung from which on the median of their values says something."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A trial to train up to a rung, or a new trial, or a reason to begin nothing now."""

    kind: Literal["go_on", "new", "wait", "done"]
    trial: int = 0
    rung: int = 0
    repeat: int | None = None  # of the recipe with another seed


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The planned times of the trainings so far, in steps of the recipe, for so many at once."""

    jobs: Sequence[TrainingStarted]
    workers: int

    def next_slot(self) -> tuple[int, float]:
        """Return the slot that is free first, and when."""
        free = [0.0] * self.workers
        for job in self.jobs:
            free[job.slot] = max(free[job.slot], job.ends)
        slot = min(range(self.workers), key=lambda number: (free[number], number))
        return slot, free[slot]


def decide(trials: Sequence[Trial], study: StudyRecord, *, running: bool) -> Decision:
    """Return what to begin, with the results so far."""
    for trial in trials:
        if trial.begun < 0:  # the study was killed just after it was drawn
            return Decision(kind="go_on", trial=trial.number, rung=trial.asked.bracket)
    continued = _next_step(trials, study)
    if continued is not None:
        return continued
    if study.trials is None or len(trials) < study.trials:
        return Decision(kind="new", trial=len(trials), rung=first_rung(study, len(trials)))
    return Decision(kind="wait" if running else "done")


def completion(trials: Sequence[Trial], study: StudyRecord) -> Decision | None:
    """Return the unfinished trial that is best at the highest rung that any has reached, to be trained to the
    end. None is returned if a finished one was better there.
    """
    sound = [trial for trial in trials if trial.failure is None and trial.values]
    open_ = [trial for trial in sound if not trial.is_complete]
    if not open_:
        return None
    rung = max(trial.rung for trial in open_)
    best = ranked([trial for trial in sound if rung in trial.values], rung, study)[0]
    if best.is_complete:
        return None
    return Decision(kind="go_on", trial=best.number, rung=len(study.rungs) - 1)


def first_rung(study: StudyRecord, number: int) -> int:
    """Return the first rung after which a trial may be stopped."""
    last = len(study.rungs) - 1
    if study.pruner == "none":
        return last
    if study.pruner != "hyperband" or number == 0:
        return 0
    # A cycle in which each bracket gets about the same steps: 9 trials that begin at the first of three
    # rungs, 3 at the second, 1 at the last.
    cycle = [rung for rung in range(last + 1) for _ in range(ETA ** (last - rung))]
    return cycle[(number - 1) % len(cycle)]


def _next_step(trials: Sequence[Trial], study: StudyRecord) -> Decision | None:
    """Return the trial to continue next: the recipe's in any case, then the longest of those that may."""
    if not trials:
        return None
    recipe = trials[0]
    if _is_paused(recipe):
        return _go_on(recipe)
    if study.pruner == "median":
        good = (each for each in trials if _is_paused(each) and _beats_median(each, trials, study))
        return next(map(_go_on, good), None)
    for rung in range(len(study.rungs) - 2, -1, -1):
        for bracket in range(rung + 1):
            rivals = [each for each in trials if each.asked.bracket == bracket and rung in each.values]
            best = ranked(rivals, rung, study)[: len(rivals) // ETA]
            waiting = [each for each in best if _is_paused(each) and each.rung == rung]
            if waiting:
                return _go_on(waiting[0])
    return None


def _is_paused(trial: Trial) -> bool:
    """Return whether a trial has reached the rung that it was begun for, and could go on."""
    return trial.failure is None and 0 <= trial.rung == trial.begun and not trial.is_complete


def _go_on(trial: Trial) -> Decision:
    return Decision(kind="go_on", trial=trial.number, rung=trial.rung + 1)


def _beats_median(trial: Trial, trials: Sequence[Trial], study: StudyRecord) -> bool:
    """Return whether a trial is as good as the median of the earlier ones at its rung, or these are few."""
    rung = trial.rung
    values = [each.values[rung] for each in trials if each.number < trial.number and rung in each.values]
    if len(values) < ENOUGH:
        return True
    median = statistics.median(values)
    return trial.values[rung] >= median if study.higher_is_better else trial.values[rung] <= median


def ranked(trials: Sequence[Trial], rung: int, study: StudyRecord) -> list[Trial]:
    """Return trials that have reached a rung, the best first; of equal ones the earliest."""
    sign = -1.0 if study.higher_is_better else 1.0
    return sorted(trials, key=lambda trial: (sign * trial.values[rung], trial.number))
