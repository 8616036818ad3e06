"""The search itself: decisions, the processes that carry them out, and the events that tell of both."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.units import format_duration
from boxcrew.train.output.screen import Screen
from boxcrew.tune.budget import REPEATS, Budget, TrainingPart
from boxcrew.tune.ledger import (
    Event,
    Ledger,
    SearchStopped,
    TrainingEnded,
    TrainingStarted,
    Trial,
    TrialDrawn,
)
from boxcrew.tune.record import REPEATED, TRIALS, StudyRecord
from boxcrew.tune.run_state import newest_step
from boxcrew.tune.sampling import draw
from boxcrew.tune.scheduler import Decision, Timeline, completion, decide
from boxcrew.tune.worker import OwnProcesses, Training, TrainingBackend, Work

MOST_FAILURES = 10
"""Trials in a row whose failure ends a study."""
_MOST_KILLS = 3  # of one training without a new checkpoint between: it is killed because of what it does
_SHOWN = 3  # settings of a trial on a line
_POLL = 1.0  # seconds after which signals are noticed at the latest
_GRACE = 10.0  # seconds in which a training whose time is over may end its step and save


class Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """Raised when Ctrl-C or SIGTERM has stopped the study and its trainings."""


@dataclass(eq=False, kw_only=True)
class Runner:
    """A study that is being searched. Nothing in it is lost if it is killed."""

    study: StudyRecord
    folder: Path
    ledger: Ledger
    screen: Screen
    on_change: Callable[[], None] = lambda: None  # called after each event
    began: float = field(
        default_factory=time.monotonic
    )  # when this command did, which has prepared the study
    backend: TrainingBackend = field(default_factory=OwnProcesses)
    _workers: dict[int, Training] = field(default_factory=dict, init=False)  # by job
    _kills: dict[int, tuple[int, int]] = field(
        default_factory=dict, init=False
    )  # by job: step, times in a row
    _signals: int = field(default=0, init=False)
    _cut_at: float | None = field(default=None, init=False)  # when trainings were stopped: time was over

    def __post_init__(self) -> None:
        self._before = self.ledger.at

    @property
    def now(self) -> float:
        """The seconds that the study has run, in all its processes."""
        return self._before + time.monotonic() - self.began

    @contextmanager
    def running(self) -> Iterator[None]:
        """Continue the trainings that had begun. Signals stop them cleanly; none outlives the context."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for job in self.ledger.running():
                self._start(job)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for worker in self._workers.values():
                worker.kill()

    def search(self) -> None:
        """Begin trainings until the search is over, then wait for those that run."""
        while self.ledger.stopped is None:
            self._decide(*Timeline(jobs=self.ledger.jobs, workers=self.study.workers).next_slot())
        self.wait_for_all()

    def begin(self, decision: Decision, slot: int = 0, time_: float | None = None) -> None:
        """Begin a training that has been decided; without a planned time it comes after all others."""
        if self._signals:  # one came while nothing could be stopped
            self.wait_for_all()
            raise Interrupted
        jobs = self.ledger.jobs
        is_repeat = decision.repeat is not None  # which no decision waits for
        last = 0.0 if is_repeat else max((job.ends for job in jobs), default=0.0)
        begins = last if time_ is None else time_
        job = TrainingStarted(
            job=len(jobs),
            trial=decision.trial,
            rung=decision.rung,
            repeat=decision.repeat,
            slot=slot,
            begins=begins,
            ends=begins + (0 if is_repeat else self.part(decision).steps),
        )
        self.add(job)
        self._start(job)

    def part(self, decision: Decision) -> TrainingPart:
        """Return the part of a training that a decision begins."""
        steps = (0, *self.study.rungs)
        begun = -1 if decision.kind == "new" else self.ledger.trials[decision.trial].begun
        length = steps[decision.rung + 1] - steps[begun + 1]
        return TrainingPart(steps=length, completes=decision.rung == len(self.study.rungs) - 1)

    def repeat_recipe(self) -> bool:
        """Train the recipe with other seeds, as many at once as the study has workers, unless that was done
        before or takes too long; return whether any training was begun.
        """
        budget, recipe = Budget.of(self.study, self.ledger, self.now), self.ledger.trials[:1]
        if not (recipe and recipe[0].is_complete and budget.allows_repeats()):
            return False
        for number in self.ledger.missing_repeats(REPEATS):
            while len(self._workers) >= self.study.workers:
                self._collect_some()
            if not Budget.of(self.study, self.ledger, self.now).allows_repeats():  # the last took too long
                break
            decision = Decision(kind="go_on", rung=len(self.study.rungs) - 1, repeat=number)
            self.begin(decision, slot=number % self.study.workers)
        self.wait_for_all()
        return True

    def wait_for_all(self) -> None:
        while self._workers:
            self._collect_some()

    def add(self, event: Event) -> None:
        self.ledger.add(event)
        self.on_change()

    def work(self, job: TrainingStarted) -> Work:
        """Return what is to be done for a job."""
        asked = self.ledger.trials[job.trial].asked
        rungs, is_last = asked.rungs, job.rung == len(asked.rungs) - 1
        name = f"{TRIALS}/{job.trial:04d}" if job.repeat is None else f"{REPEATED}/{job.repeat}"
        config = self.study.config(asked.settings, rungs, self.folder / name)
        if job.repeat is not None:
            config = config.changed({"seed": self.study.seed + job.repeat})
        if devices := self.study.devices:
            config = config.changed({"device": devices[job.slot % len(devices)]})
        return Work(config=config.tree(), pause_at=None if is_last else rungs[job.rung])

    def _decide(self, slot: int, time_: float) -> None:
        """Take the next decision for a slot that is free at a planned time."""
        self._wait_until(time_)
        self._stop_after_failures()
        trials = self.ledger.visible(time_)
        later = min((job.ends for job in self.ledger.jobs if job.ends > time_), default=None)
        decision = decide(trials, self.study, running=later is not None)
        if decision.kind in {"go_on", "new"} and not self._has_time_for(decision):
            # Only now: until then the time is better used for the search, and after it what is left.
            if not self.repeat_recipe():
                self.add(SearchStopped(reason="the time is used up", at=self.now))
        elif decision.kind == "new" and not self._ask(trials, decision):
            self._wait_or_end(slot, later)
        elif decision.kind in {"go_on", "new"}:
            self.begin(decision, slot, time_)
        else:
            self._wait_or_end(slot, later)

    def _wait_or_end(self, slot: int, later: float | None) -> None:
        """Decide again when the next training has ended; if none runs, the search is over."""
        if later is None:
            self.add(SearchStopped(reason="all trials are done", at=self.now))
        else:
            self._decide(slot, later)

    def _has_time_for(self, decision: Decision) -> bool:
        """Return whether to go on with the search. The time that is kept back to complete the best trial is
        used too if there is nothing to complete, or not enough time for it.
        """
        budget = Budget.of(self.study, self.ledger, self.now)
        if budget.allows(self.part(decision)):
            return True
        last = completion(self.ledger.trials, self.study)
        is_kept = last is not None and budget.allows_promotion(self.part(last))
        is_needed = is_kept or budget.allows_repeats()
        return not is_needed and budget.allows_promotion(self.part(decision))

    def _ask(self, trials: Sequence[Trial], decision: Decision) -> bool:
        """Draw the settings of a new trial; return whether there are any left to try."""
        params = draw(self.study, trials, decision.trial)
        if params is None:
            return False
        settings = self.study.space.settings(params) if decision.trial else {}
        asked = TrialDrawn(
            trial=decision.trial,
            params=params,
            settings=settings,
            rungs=self.study.rungs_for(self.study.cost(settings)),
            bracket=decision.rung,
        )
        self.add(asked)
        return True

    def _start(self, job: TrainingStarted) -> None:
        self._workers[job.job] = self.backend.begin(job.job, self.work(job))

    def _wait_until(self, time_: float) -> None:
        """Wait for all trainings that were planned to end by then."""
        awaited = {job.job for job in self.ledger.jobs if job.ends <= time_}
        while awaited & self._workers.keys():
            self._collect_some()

    def _collect_some(self) -> None:
        """Wait until a training ends, or for a moment, and note how it ended. All are stopped when the time
        is over, which a machine that has become slower may reach in the last of them.
        """
        if Budget.of(self.study, self.ledger, self.now).is_over:
            self._cut()
        ended = self.backend.wait(list(self._workers.values()), _POLL)
        for number, worker in list(self._workers.items()):
            if worker in ended:
                del self._workers[number]
                self._collect(self.ledger.jobs[number], worker)
        if self._signals and not self._workers:
            raise Interrupted

    def _cut(self) -> None:
        """Stop all trainings, and end those that take too long for that."""
        if self._cut_at is None:
            self._cut_at = time.monotonic()
            for worker in self._workers.values():
                worker.stop()
        elif time.monotonic() - self._cut_at > _GRACE:
            for worker in self._workers.values():
                worker.kill()

    def _collect(self, job: TrainingStarted, worker: Training) -> None:
        failure = worker.failure()
        if failure is None and not worker.work.is_done():
            if self._cut_at is not None:
                self._end(job, worker, None, None)
            elif not self._signals:
                self._start_again(job, worker)
            return
        value = None
        if failure is None:
            value = worker.work.value(self.study.metric, higher_is_better=self.study.higher_is_better)
            failure = None if value is not None else f"{self.study.metric} could not be measured"
        self._end(job, worker, value, failure)

    def _end(self, job: TrainingStarted, worker: Training, value: float | None, failure: str | None) -> None:
        seconds = worker.seconds()
        self.add(TrainingEnded(job=job.job, value=value, failure=failure, seconds=seconds, at=self.now))
        name = (
            f"trial {job.trial}"
            if job.repeat is None
            else f"the recipe with seed {self.study.seed + job.repeat}"
        )
        step, steps = self.ledger.trials[job.trial].asked.rungs[job.rung], self.study.rungs[-1]
        if failure is not None:
            self.screen.warn(f"{name} failed: {failure}")
            return
        settings = self.ledger.trials[job.trial].asked.settings
        if value is None:
            self.screen.warn(f"{name}: was stopped before step {step} of {steps}: the time is over")
            return
        result = f"{self.study.metric} {value:.4g} after {step} of {steps} steps"
        self.screen.info(f"{name}: {result}, {format_duration(self.now)} so far: {words(settings)}")

    def _start_again(self, job: TrainingStarted, worker: Training) -> None:
        """Continue a training whose process was killed; one that always is has failed."""
        step = newest_step(worker.work.folder)
        before, times = self._kills.get(job.job, (step, 0))
        times = times + 1 if before == step else 1
        self._kills[job.job] = (step, times)
        if times < _MOST_KILLS:
            self._start(job)
        else:
            self._end(
                job, worker, None, f"its process was killed {times} times in a row; perhaps memory ran out"
            )

    def _stop_after_failures(self) -> None:
        tried = [trial for trial in self.ledger.trials if trial.failure is not None or trial.values]
        last = tried[-MOST_FAILURES:]
        if len(last) == MOST_FAILURES and all(trial.failure is not None for trial in last):
            raise BoxcrewError(
                f"{MOST_FAILURES} trials in a row failed, the last one: {last[-1].failure}",
                advice=f"search closer to settings that work; the runs are in {self.folder / TRIALS}",
            )

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Stop all trainings; a second signal ends everything at once."""
        self._signals += 1
        if self._signals > 1:
            raise KeyboardInterrupt
        self.screen.info(
            f"{signal.Signals(number).name}: stopping the trainings; a second signal stops at once"
        )
        for worker in self._workers.values():
            worker.stop()


def words(settings: Mapping[str, Any]) -> str:
    """Return the first settings of a trial as a command has them."""
    pairs = [f"{key}={text(value)}" for key, value in settings.items()]
    more = [f"and {len(pairs) - _SHOWN} more"] if len(pairs) > _SHOWN else []
    return " ".join([*pairs[:_SHOWN], *more]) or "the recipe's settings"


def text(setting: object) -> str:
    """Return the value of a setting as a line on the screen shows it."""
    return f"{setting:.4g}" if isinstance(setting, float) else str(setting)
