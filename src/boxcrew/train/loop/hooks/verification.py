"""Predicted against measured: the first steps of a run show whether its plan was right."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from boxcrew.deploy.memory import peak_memory
from boxcrew.plan.prediction import Prediction
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.planning.planner import FirstSteps

LEFT_OUT = 3  # of the first steps: they also make room and load libraries
ENOUGH_STEPS, ENOUGH_SECONDS = 12, 10.0  # watched: as many, or three in at least that time
FEWEST = 3


class Verification(Hook):
    name = "verification"

    def __init__(self, judge: Callable[[Trainer, FirstSteps], None]) -> None:
        self._judge = judge
        self._reports: list[StepReport] = []
        self._num_seen = 0
        self.found: FirstSteps | None = None
        self._predicted: Prediction | None = None  # before anything was planned anew
        self._device = "cpu"

    def to_json(self) -> dict[str, Any] | None:
        """None where there were too few steps."""
        if self.found is None:
            return None
        measured = {
            "step_seconds": self.found.step_seconds,
            "mean_step_seconds": statistics.mean(report.seconds for report in self._reports),
            "peak_bytes": self.found.peak_bytes,
        }
        if self._predicted is None:
            return {"measured": measured}
        memory = self._predicted.on(self._device)
        predicted = {
            "step_seconds": self._predicted.at_first.tree(),
            "peak_bytes": memory.measurable,
            "most_bytes": memory.measurable + memory.margin,
        }
        return {"predicted": predicted, "measured": measured}

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        self._num_seen += 1
        if self.found is not None or self._num_seen <= LEFT_OUT or report.fault:
            return
        self._reports.append(report)
        if self._has_enough:
            self._end(trainer)

    def end(self, trainer: Trainer) -> None:
        if self.found is None and len(self._reports) >= FEWEST:
            self._end(trainer)

    @property
    def _has_enough(self) -> bool:
        seconds = sum(report.seconds for report in self._reports)
        num = len(self._reports)
        return num >= ENOUGH_STEPS or (num >= FEWEST and seconds >= ENOUGH_SECONDS)

    def _end(self, trainer: Trainer) -> None:
        self.found = FirstSteps(
            step_seconds=_usual([report.seconds for report in self._reports], trainer.task.cycle),
            wait_seconds=_usual([report.data_wait for report in self._reports], trainer.task.cycle),
            peak_bytes=peak_memory(trainer.deployment.own_clones[0].device),
        )
        plan = trainer.deployment.plan
        self._predicted = plan.predicted if plan.num_processes == 1 else None  # else it is of all of them
        self._device = trainer.deployment.own_clones[0].device
        self._judge(trainer, self.found)


def _usual(seconds: Sequence[float], cycle: int) -> float:
    """Of a step: the median of the means over as many steps as have all phases."""
    whole = [seconds[start : start + cycle] for start in range(0, len(seconds) - cycle + 1, cycle)]
    return statistics.median(statistics.fmean(part) for part in whole or [seconds])
