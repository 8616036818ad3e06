"""Examinations during training, the best weights so far, and stopping when nothing gets better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.metrics import Metrics

TIMES = 5  # examinations in a run that does not say how many


class _NoTime(Exception):  # noqa: N818 - nothing is wrong
    """The run was interrupted in the middle of an examination."""


class EvaluationHook(Hook):
    """Runs `examine(progress)` when due; `progress` is to be told, every few images, how many are done.
    `keep_best` stores the weights of the best so far, and says whether it could; `on_result(trainer,
    evaluation, is_best)` is told of each.

    An examination that an interrupt keeps from happening, or breaks off, is made up for when the run goes on.
    """

    name = "evaluation"

    def __init__(
        self,
        evaluate: Callable[[Trainer, Callable[[int], None]], Evaluation],
        config: RunConfig,
        metrics: Metrics,
        *,
        keep_best: Callable[[Trainer, Evaluation], bool],
        on_result: Sequence[Callable[[Trainer, Evaluation, bool], None]],
    ) -> None:
        self._evaluate = evaluate
        self._config = config.evaluation
        self._metric = config.metric
        self._higher_is_better = config.task.metrics[config.metric]
        self._metrics = metrics
        self._keep_best = keep_best
        self._on_result = on_result
        self._count = 0  # examinations due so far
        self._step = -1  # of the last one
        self._without_gain = 0
        self.best: float | None = None
        self.best_step = 0
        self.last: Evaluation | None = None  # of this process

    def begin(self, trainer: Trainer) -> None:
        """Makes up for an examination that was due just when the run was interrupted."""
        if trainer.step:
            self._run_if_due(trainer)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if not trainer.interrupted:
            self._run_if_due(trainer)

    def _run_if_due(self, trainer: Trainer) -> None:
        progress, every = trainer.progress, self._config.every_epochs
        count = progress.epoch / every if every else progress.fraction * TIMES
        due = math.floor(count + 1e-9)
        if due > self._count or (progress.fraction >= 1 and self._step != trainer.step):
            before, self._count = self._count, due
            if not self._run(trainer):
                self._count = before

    def end(self, trainer: Trainer) -> None:
        if self._step != trainer.step and not trainer.interrupted:
            self._run(trainer)

    def state(self) -> dict[str, Any]:
        return {
            "count": self._count,
            "step": self._step,
            "without_gain": self._without_gain,
            "best": self.best,
            "best_step": self.best_step,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._count, self._step = state["count"], state["step"]
        self._without_gain = state["without_gain"]
        # A run that goes back keeps the best weights that it has stored since.
        if self.best is None or (state["best"] is not None and not self._is_better(self.best, state["best"])):
            self.best, self.best_step = state["best"], state["best_step"]

    def _run(self, trainer: Trainer) -> bool:
        """Whether it came to its end."""

        def look_up(_: int) -> None:
            if trainer.interrupted:
                raise _NoTime

        try:
            evaluation = self._evaluate(trainer, look_up)
        except _NoTime:
            return False
        self._step = trainer.step
        self.last = evaluation
        self._judge(trainer, evaluation)
        return True

    def _is_better(self, value: float, other: float) -> bool:
        return value > other if self._higher_is_better else value < other

    def _judge(self, trainer: Trainer, evaluation: Evaluation) -> None:
        numbers = dict(evaluation.numbers)
        value = numbers[self._metric]
        is_best = self.best is None or self._is_better(value, self.best)
        self._without_gain = 0 if is_best else self._without_gain + 1
        if is_best and self._keep_best(trainer, evaluation):  # best is what is stored
            self.best, self.best_step = value, trainer.step
        self._metrics.add_result(trainer.progress, trainer.elapsed, {**numbers, **evaluation.by_class()})
        for tell in self._on_result:
            tell(trainer, evaluation, is_best)
        if self._config.patience and self._without_gain >= self._config.patience:
            trainer.stop(
                f"no better {self._metric} in {self._without_gain} evaluations (evaluation.patience)"
            )
