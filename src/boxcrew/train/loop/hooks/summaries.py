"""The numbers of training, written every `summaries.every_steps` steps."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.metrics import MetricsWriter


class Summaries(Hook):
    """Writes means over the steps since the last line, and keeps sums over the full run for its summary. Both
    survive a stop: a resumed run writes the same lines as one that was never stopped.
    """

    name = "summaries"

    def __init__(self, metrics: MetricsWriter, *, every_steps: int) -> None:
        self._metrics = metrics
        self._every = every_steps
        self.sums: dict[str, float] = {}  # since the last line
        self.counts: dict[str, int] = {}  # steps in each sum: not all have every loss term
        self.rate = 0.0
        self.num_images = 0
        self.seconds = 0.0
        self.data_wait = 0.0

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        numbers: dict[str, float] = {
            "images": report.num_samples,
            "seconds": report.seconds,
            "data_wait": report.data_wait,
        }
        if report.fault is None:
            numbers["loss"] = report.loss
            numbers |= {f"loss/{term}": value for term, value in report.terms.items()}
            numbers["gradient_norm"] = report.gradient_norm
        for name, value in numbers.items():
            self.sums[name] = self.sums.get(name, 0) + value
            self.counts[name] = self.counts.get(name, 0) + 1
        self.rate = report.rate
        self.num_images += report.num_samples
        self.seconds += report.seconds
        self.data_wait += report.data_wait
        if trainer.step % self._every == 0:
            self._write(trainer)

    def after_rollback(self, trainer: Trainer) -> None:
        self._metrics.forget_after(trainer.step)

    def end(self, trainer: Trainer) -> None:
        # A run that was killed after this line continues from the checkpoint before it.
        is_written = self._metrics.trained_to == trainer.step
        if self.sums and not trainer.interrupted and not is_written:
            self._write(trainer)

    def state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def load_state(self, state: Mapping[str, Any]) -> None:
        vars(self).update(copy.deepcopy(dict(state)))

    def _write(self, trainer: Trainer) -> None:
        sums, counts = self.sums, self.counts
        self.sums, self.counts = {}, {}
        means = [name for name in sums if name.partition("/")[0] in {"loss", "gradient_norm"}]
        numbers = {name: sums[name] / counts[name] for name in means}  # none if every step failed
        numbers |= {
            "rate": self.rate,
            "images_per_second": sums["images"] / sums["seconds"],
            "data_wait": sums["data_wait"] / sums["seconds"],
        }
        self._metrics.add(trainer.progress, trainer.elapsed, numbers)
