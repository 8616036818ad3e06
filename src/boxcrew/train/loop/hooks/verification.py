"""Verification of the plan: the time and memory of the first steps against the prediction."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from boxcrew.deploy.memory import peak_memory
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.planning.planner import FirstSteps

WARM_UP_STEPS = 3  # not measured: they also allocate memory and load libraries
ENOUGH_STEPS, ENOUGH_SECONDS = 12, 10.0  # measured: as many steps, or MIN_STEPS in at least that time
MIN_STEPS = 3


class Verification(Hook):
    """Measures the first steps of this process and calls `on_measured` once."""

    name = "verification"

    def __init__(self, on_measured: Callable[[Trainer, FirstSteps], None]) -> None:
        self._on_measured = on_measured
        self._reports: list[StepReport] = []
        self._num_seen = 0
        self._result: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any] | None:
        """Return the prediction and the measurement; None if there were too few steps."""
        return self._result

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        self._num_seen += 1
        if self._result is not None or self._num_seen <= WARM_UP_STEPS or report.fault:
            return
        self._reports.append(report)
        num, seconds = len(self._reports), sum(report.seconds for report in self._reports)
        if num >= ENOUGH_STEPS or (num >= MIN_STEPS and seconds >= ENOUGH_SECONDS):
            self._finish(trainer)

    def end(self, trainer: Trainer) -> None:
        if self._result is None and len(self._reports) >= MIN_STEPS:
            self._finish(trainer)

    def _finish(self, trainer: Trainer) -> None:
        plan, device = trainer.deployment.plan, trainer.deployment.own_clones[0].device
        seconds = [report.seconds for report in self._reports]
        first = FirstSteps(
            step_seconds=_typical(seconds, trainer.task.cycle),
            wait_seconds=_typical([report.data_wait for report in self._reports], trainer.task.cycle),
            peak_bytes=peak_memory(device),
        )
        self._result = {}
        if plan.predicted is not None and plan.num_processes == 1:  # else it is that of all
            memory = plan.predicted.on(device)
            self._result["predicted"] = {
                "step_seconds": plan.predicted.at_first.tree(),
                "peak_bytes": memory.measurable,
                "most_bytes": memory.measurable + memory.margin,
            }
        self._result["measured"] = {
            "step_seconds": first.step_seconds,
            "mean_step_seconds": statistics.mean(seconds),
            "peak_bytes": first.peak_bytes,
        }
        self._on_measured(trainer, first)


def _typical(seconds: Sequence[float], cycle: int) -> float:
    """Return the median over cycles of the mean of their steps. A cycle has all phases of the task."""
    cycles = [seconds[start : start + cycle] for start in range(0, len(seconds) - cycle + 1, cycle)]
    return statistics.median(statistics.fmean(steps) for steps in cycles or [seconds])
