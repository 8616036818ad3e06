"""The time of a study: what a training will take, and what is kept back for the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from boxcrew.tune.ledger import Ledger
from boxcrew.tune.record import StudyRecord

REPEATS = 2
"""More trainings of the recipe with other seeds, which show how much is chance."""
REPEATS_SHARE = 0.25
"""Share of a study that the repeats may take."""
MARGIN = 0.02
"""Share of the time that is kept for the report, and for steps that take longer than before."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The time that a study has, how much of it has passed, and what a step of the recipe takes."""

    time: float | None  # seconds; None: as long as it takes
    now: float
    step_seconds: float | None  # of the study's clock, with everything around the steps; None: not known yet
    workers: int
    rungs: tuple[int, ...]
    steps_done: float  # of the recipe

    @classmethod
    def of(cls, study: StudyRecord, ledger: Ledger, now: float) -> Self:
        """Return the budget of a study that has run for `now` seconds."""
        done = sum(job.ends - job.begins for job in ledger.jobs if job.job in ledger.ends)
        measured = now * study.workers / done if done else study.step_seconds
        return cls(
            time=study.time,
            now=now,
            step_seconds=measured,
            workers=study.workers,
            rungs=study.rungs,
            steps_done=done,
        )

    def allows(self, steps: float) -> bool:
        """Return whether the search may go on with a training of so many steps."""
        return self._fits(steps + self._last_promotion, spare=self._repeats_seconds)

    def allows_promotion(self, steps: float) -> bool:
        """Return whether the best trial may be trained to the end."""
        return self._fits(steps)

    def allows_repeats(self) -> bool:
        """Return whether there is time for the repeats of the recipe, in a reasonable part of the study."""
        return self._may_repeat and self._fits(0, spare=self._repeats_seconds)

    def _fits(self, steps: float, *, spare: float = 0.0) -> bool:
        if self.time is None or self.step_seconds is None:
            return True
        return self.now + steps * self.step_seconds + spare <= self.time * (1 - MARGIN)

    @property
    def _last_promotion(self) -> int:
        """The most steps that it takes to complete a trial that has been compared at all."""
        return self.rungs[-1] - self.rungs[-2] if len(self.rungs) > 1 else 0

    @property
    def _repeats_steps(self) -> int:
        return REPEATS * self.rungs[-1]

    @property
    def _repeats_seconds(self) -> float:
        if not self._may_repeat or self.step_seconds is None:
            return 0.0
        rounds = -(-REPEATS // self.workers)
        return rounds * self.rungs[-1] * self.step_seconds

    @property
    def _may_repeat(self) -> bool:
        if self.time is not None and self.step_seconds is not None:
            return self._repeats_steps * self.step_seconds <= REPEATS_SHARE * self.time * self.workers
        return self._repeats_steps <= REPEATS_SHARE * self.steps_done
