"""A watch for overfitting: advice while training, if the evaluations no longer improve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from boxcrew.evaluate.advice import Advice, overfitting_trend, stalled
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.screen import Screen


@dataclass(frozen=True, kw_only=True)
class _WatchState:
    total: float = 0.0  # sum of the training losses since the last evaluation
    count: int = 0
    best_step: int = 0
    best_loss: float | None = None  # mean training loss before the best evaluation
    without_gain: int = 0  # evaluations since then
    told: Mapping[str, Any] | None = None  # the advice, once it was given


class Watch(Hook):
    """Warns once if the training loss keeps falling while evaluations get no better. For a task whose loss
    says nothing about quality it warns if evaluations get no better for longer.
    """

    name = "watch"

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._state = _WatchState()

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The advice given so far."""
        return () if self._state.told is None else (Advice(**self._state.told),)

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        if report.fault is None:
            state = self._state
            self._state = replace(state, total=state.total + report.loss, count=state.count + 1)

    def on_result(self, trainer: Trainer, evaluation: Evaluation, is_best: bool) -> None:  # noqa: ARG002, FBT001
        state = self._state
        if not state.count:
            return
        loss = state.total / state.count
        state = replace(state, total=0.0, count=0)
        if is_best or state.best_loss is None:
            self._state = replace(state, best_step=trainer.step, best_loss=loss, without_gain=0)
            return
        state = replace(state, without_gain=state.without_gain + 1)
        since = {"best_step": state.best_step, "evaluations": state.without_gain}
        advice = stalled(**since)
        if trainer.task.loss_shows_progress:
            advice = overfitting_trend(**since, loss_then=state.best_loss or 0.0, loss_now=loss)
        if advice and state.told is None:
            self._screen.info(f"advice: {advice[0]}")
            state = replace(state, told=advice[0].to_json())
        self._state = state

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._state = _WatchState(**state)
