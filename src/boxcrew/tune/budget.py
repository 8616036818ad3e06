"""The time of a study: what a training will take, and what is kept back for the end."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

from boxcrew.tune.ledger import Ledger
from boxcrew.tune.record import StudyRecord

REPEATS = 2
"""More trainings of the recipe with other seeds, which show how much is chance."""
REPEATS_SHARE = 0.25
"""Share of a study that the repeats may take."""
MARGIN = 0.02
"""Share of the time that is kept for the report, and for steps that take longer than before."""


STARTING = 2.0
"""Seconds that the process of a training is assumed to take besides training, until they are measured."""


@dataclass(frozen=True, kw_only=True)
class TrainingPart:
    """A part of a training: its length in steps of the recipe, and whether it is the last one."""

    steps: float
    completes: bool


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The time that a study has, how much of it has passed, and what trainings take."""

    time: float | None  # seconds; None: as long as it takes
    now: float
    step_seconds: float  # of a step of the recipe
    starting: float  # seconds of a training besides its steps: the start of its process, its evaluation
    solving: float = 0.0  # seconds of the closed forms at the end of a whole training
    workers: int
    rungs: tuple[int, ...]
    steps_done: float  # of the recipe
    repeats_left: int = REPEATS

    @classmethod
    def of(cls, study: StudyRecord, ledger: Ledger, now: float) -> Self:
        """Return the budget of a study that has run for `now` seconds, from what its trainings took."""
        ended = [(job, ledger.ends[job.job]) for job in ledger.jobs if job.job in ledger.ends]
        last = len(study.rungs) - 1
        parts, ends = list[tuple[float, float]](), list[tuple[float, float]]()
        for job, end in ended:
            if end.value is not None:
                is_end = job.rung == last and study.solve_seconds is not None
                (ends if is_end else parts).append((job.length(study.rungs), end.seconds))
        step_seconds, starting, solving = fitted_with_end(parts, ends, study)
        return cls(
            time=study.time,
            now=now,
            step_seconds=step_seconds,
            starting=starting,
            solving=solving,
            workers=study.workers,
            rungs=study.rungs,
            steps_done=sum(job.length(study.rungs) for job, _ in ended),
            repeats_left=len(ledger.missing_repeats(REPEATS)),
        )

    @property
    def is_over(self) -> bool:
        """True if trainings must end now, so that the test and the report are ready in time."""
        return not self._fits(self._test_seconds)

    def allows(self, part: TrainingPart) -> bool:
        """Return whether the search may go on with a training, with the time kept back that the end takes."""
        rungs = (0, *self.rungs)
        last = self._seconds(TrainingPart(steps=rungs[-1] - rungs[-2], completes=True)) if rungs[-2] else 0.0
        return self._fits(self._seconds(part) + last + self._repeats_seconds + self._test_seconds)

    def allows_promotion(self, part: TrainingPart) -> bool:
        """Return whether a training may be the last one, such as that of the best trial."""
        return self._fits(self._seconds(part) + self._test_seconds)

    def allows_repeats(self) -> bool:
        """Return whether there is time for the repeats of the recipe, in a reasonable part of the study."""
        return (
            self.repeats_left > 0
            and self._may_repeat
            and self._fits(self._repeats_seconds + self._test_seconds)
        )

    def _fits(self, seconds: float) -> bool:
        return self.time is None or self.now + seconds <= self.time * (1 - MARGIN)

    def _seconds(self, part: TrainingPart) -> float:
        """Return what a part of a training takes."""
        return self.starting + part.steps * self.step_seconds + (self.solving if part.completes else 0.0)

    @property
    def _test_seconds(self) -> float:
        """The seconds of the two evaluations on the test split: each about as long as one in a training."""
        return 2 * self.starting

    @property
    def _repeats_seconds(self) -> float:
        if not self._may_repeat:
            return 0.0
        rounds = -(-self.repeats_left // self.workers)
        return rounds * self._whole_seconds

    @property
    def _whole_seconds(self) -> float:
        """The seconds of a training from the first step to the last, which is evaluated at every rung."""
        return len(self.rungs) * self.starting + self.rungs[-1] * self.step_seconds + self.solving

    @property
    def _may_repeat(self) -> bool:
        if self.time is not None:
            return REPEATS * self._whole_seconds <= REPEATS_SHARE * self.time * self.workers
        return REPEATS * self.rungs[-1] <= REPEATS_SHARE * self.steps_done


def fitted_with_end(
    parts: Sequence[tuple[float, float]], ends: Sequence[tuple[float, float]], study: StudyRecord
) -> tuple[float, float, float]:
    """Return the seconds of a step, those that a part of a training takes besides, and those of the closed
    forms after the last. Trainings that are never paused do not tell the last two apart: then the closed
    forms take what was predicted.
    """
    planned, predicted = study.step_seconds or 0.0, study.solve_seconds or 0.0
    if not parts:
        ends_without = [(steps, max(0.0, seconds - predicted)) for steps, seconds in ends]
        return (*fitted(ends_without, planned=planned), predicted)
    step_seconds, starting = fitted(parts, planned=planned)
    besides = [max(0.0, seconds - starting - steps * step_seconds) for steps, seconds in ends]
    return step_seconds, starting, statistics.median(besides) if besides else predicted


def fitted(times: Sequence[tuple[float, float]], *, planned: float) -> tuple[float, float]:
    """Return the seconds of a step and those that a training takes besides, from the steps and the seconds of
    trainings. They are medians (Theil-Sen), because other programs slow some trainings down. `planned` is the
    time of a step as long as all trainings had the same length.
    """
    if not times:
        return planned, STARTING
    slopes = [
        (seconds - other) / (steps - least)
        for (least, other), (steps, seconds) in combinations(sorted(times), 2)
        if steps > least
    ]
    fastest = min(seconds / steps for steps, seconds in times)
    step_seconds = max(0.0, statistics.median(slopes)) if slopes else min(planned, fastest)
    besides = statistics.median(seconds - steps * step_seconds for steps, seconds in times)
    return step_seconds, max(0.0, besides)
