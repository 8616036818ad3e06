"""Evaluation during training, the best weights so far, and early stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from boxcrew.core.files import write_json
from boxcrew.core.units import format_duration
from boxcrew.evaluate.evaluation import Evaluation, is_measured
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import EvalData, EvalOptions, TaskData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import Checkpoint
from boxcrew.train.loop.hooks.ema import Ema
from boxcrew.train.loop.schedule import Progress
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.best_effort import BestEffort
from boxcrew.train.output.metrics import MetricsWriter
from boxcrew.train.output.outcome import save_task
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.directory import read_record

EVALUATION = "evaluation.json"
TIMES = 5  # evaluations in a run that does not set `evaluation.every_epochs`
TIME_FRACTION = 0.1  # of the time between two of them that one may take, if the time of the run is limited
OnResult = Callable[[Trainer, Evaluation, bool], None]
"""Called after each evaluation; the last argument says whether it is the best so far."""


class _Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """Raised to break off an evaluation when the run is interrupted."""


@dataclass(frozen=True, kw_only=True)
class EvaluationState:
    """The state of the evaluation hook, as it is stored in a checkpoint."""

    count: int = 0  # evaluations due so far
    step: int = -1  # of the last one
    # Zero unless the time of the run is limited: all else in a state is the same on every machine.
    elapsed: float = 0.0  # seconds of training before the last one
    seconds: float = 0.0  # that the last one took
    without_gain: int = 0  # consecutive evaluations without a better one
    best: float | None = None  # value of the metric for the stored best weights; None if it has none
    best_step: int = 0

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        return cls(**checkpoint.hook_state(EvaluationHook.name))


def forget_best(checkpoint: Checkpoint) -> Checkpoint:
    """Return a copy for a run in another directory, where the first evaluation is the best again."""
    state = replace(EvaluationState.of(checkpoint), best=None, without_gain=0)
    return checkpoint.with_hook_state(EvaluationHook.name, asdict(state))


@dataclass(frozen=True, kw_only=True, eq=False)
class EvalRunner:
    """Evaluates the average of the weights, or the weights themselves if no average is kept."""

    task_data: EvalData
    ema: Ema
    options: EvalOptions

    def evaluate(self, trainer: Trainer, progress: Callable[[int], None]) -> tuple[Task, Evaluation]:
        """Return the evaluated task and the result. `progress` is called with the number of samples done."""
        task = self.ema.eval_copy(trainer)
        options = replace(self.options, progress=progress)
        with eval_mode(task):
            return task, self.task_data.evaluate(task, trainer.deployment.to_device, options)


@dataclass(frozen=True, eq=False)
class BestWeights:
    """The files of the best evaluation so far: `weights/best.safetensors` and `evaluation.json`."""

    folder: Path
    task_data: TaskData
    files: BestEffort
    seed: int

    def save(self, task: Task, evaluation: Evaluation, *, step: int) -> bool:
        """Write the weights with the report of their evaluation; return whether that succeeded."""
        config, facts = self.task_data.config, self.task_data.facts
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        report = {"step": step, "task": config.name, "evaluated_at": now, **evaluation.to_json()}
        name = "weights/best.safetensors"
        with self.files.writing(name):
            save_task(self.folder / name, task, config, facts, step=step, seed=self.seed)
            write_json(self.folder / EVALUATION, report)
        return self.files.is_written(name)


@dataclass(frozen=True, kw_only=True)
class BestScores:
    """The scores that `evaluation.json` has of the best weights; empty if nothing was evaluated yet."""

    numbers: Mapping[str, float | None]
    milliseconds: Mapping[str, float]  # of each part of a prediction
    classes: Sequence[Mapping[str, Any]]  # the numbers of each class

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read the scores in a run directory; raise `ValueError` if the file is damaged."""
        report = read_record(folder, EVALUATION)
        return cls(
            numbers=report.get("numbers", {}),
            milliseconds=report.get("milliseconds", {}),
            classes=report.get("classes", []),
        )


@dataclass(eq=False, repr=False)
class EvaluationHook(Hook):
    """Evaluates when due, saves the best weights, and stops the run when `evaluation.patience` runs out.

    An evaluation that an interrupt prevents or breaks off is repeated when the run is resumed.
    """

    name = "evaluation"

    config: RunConfig
    eval_runner: EvalRunner
    _: KW_ONLY
    best_weights: BestWeights
    metrics: MetricsWriter
    screen: Screen
    on_result: Sequence[OnResult] = ()
    last: Evaluation | None = field(default=None, init=False)  # of this process
    _state: EvaluationState = field(default_factory=EvaluationState, init=False)

    @property
    def best_step(self) -> int:
        """The step of the stored best weights; 0 if there are none."""
        return self._state.best_step

    def begin(self, trainer: Trainer) -> None:
        """Repeat an evaluation that was due when the run was interrupted."""
        if trainer.step:
            self._evaluate_if_due(trainer)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if not trainer.interrupted:
            self._evaluate_if_due(trainer)

    def end(self, trainer: Trainer) -> None:
        if self._state.step != trainer.step and not trainer.interrupted:
            self._evaluate(trainer, count=self._state.count)

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def load_state(self, state: Mapping[str, Any]) -> None:
        loaded, now = EvaluationState(**state), self._state
        # After a rollback the better weights that were stored since then are still there.
        if now.best is not None and (loaded.best is None or not self._is_better(loaded.best, now.best)):
            loaded = replace(loaded, best=now.best, best_step=now.best_step)
        self._state = loaded

    def _evaluate_if_due(self, trainer: Trainer) -> None:
        progress, count = trainer.progress, self._num_due(trainer.progress)
        is_over = progress.fraction >= 1 and self._state.step != trainer.step
        if is_over or (count > self._state.count and not self._is_too_early(trainer)):
            self._evaluate(trainer, count=count)
        elif count > self._state.count:
            self._state = replace(self._state, count=count)

    def _num_due(self, progress: Progress) -> int:
        """Return how many evaluations are due by now."""
        config = self.config.evaluation
        if config.at:
            return sum(progress.fraction >= fraction for fraction in config.at)
        passed = progress.epoch / config.every_epochs if config.every_epochs else progress.fraction * TIMES
        return math.floor(passed + 1e-9)

    def _is_too_early(self, trainer: Trainer) -> bool:
        """Return whether evaluations would take too much of a limited time that is meant for learning."""
        config = self.config.evaluation
        if config.every_epochs or config.at or not _has_time_limit(trainer):
            return False
        return TIME_FRACTION * (trainer.elapsed - self._state.elapsed) < self._state.seconds

    def _evaluate(self, trainer: Trainer, *, count: int) -> None:
        """Evaluate and act on the result. Where an interrupt breaks it off, the state stays unchanged."""

        def check(_: int) -> None:
            if trainer.interrupted:
                raise _Interrupted

        try:
            task, self.last = self.eval_runner.evaluate(trainer, check)
        except _Interrupted:
            return
        self._state = replace(self._state, count=count, step=trainer.step)
        if _has_time_limit(trainer):
            self._state = replace(self._state, elapsed=trainer.elapsed, seconds=self.last.seconds)
        is_best = self._compare(trainer, task, self.last)
        numbers = {**self.last.numbers, **self.last.by_class()}
        measured = {name: value for name, value in numbers.items() if is_measured(value)}
        self.metrics.add_result(trainer.progress, trainer.elapsed, measured)
        self._report(trainer, self.last, is_best=is_best)
        for notify in self.on_result:
            notify(trainer, self.last, is_best)
        without_gain, patience = self._state.without_gain, self.config.evaluation.patience
        if patience and without_gain >= patience:
            trainer.stop(
                f"no better {self.config.metric} in {without_gain} evaluations (evaluation.patience)"
            )

    def _compare(self, trainer: Trainer, task: Task, evaluation: Evaluation) -> bool:
        """Return whether the result is the best so far: of equal ones the last, and the last of all as long
        as nothing could be measured. `state.best` is that of the weights on disk.
        """
        value, best = self._value(evaluation), self._state.best
        has_gained = best is None or (value is not None and self._is_better(value, best))
        is_best = has_gained or value == best
        self._state = replace(self._state, without_gain=0 if has_gained else self._state.without_gain + 1)
        if is_best and self.best_weights.save(task, evaluation, step=trainer.step):
            self._state = replace(self._state, best=value, best_step=trainer.step)
        return is_best

    def _value(self, evaluation: Evaluation) -> float | None:
        """Return the value of the metric that decides; None if it could not be measured."""
        value = evaluation.numbers[self.config.metric]
        return value if is_measured(value) else None

    def _report(self, trainer: Trainer, evaluation: Evaluation, *, is_best: bool) -> None:
        is_shown = is_best and self._value(evaluation) is not None
        taken = format_duration(evaluation.seconds) + (" (best so far)" if is_shown else "")
        self.screen.info(f"step {trainer.step}: {evaluation.sentence()} in {taken}")
        for problem in evaluation.skipped:
            self.screen.warn(f"not evaluated: {problem}")

    def _is_better(self, value: float, other: float) -> bool:
        return value > other if self.config.task.metrics[self.config.metric] else value < other


def _has_time_limit(trainer: Trainer) -> bool:
    return trainer.schedule.limits.seconds is not None
