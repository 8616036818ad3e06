"""The numbers of training, every so many steps."""

from __future__ import annotations

from boxcrew.train.metrics import Metrics
from boxcrew.train.trainer import Hook, StepReport, Trainer


class Summaries(Hook):
    """Means over the steps since the last line. `history` keeps what the summary of the run needs."""

    name = "summaries"

    def __init__(self, metrics: Metrics, *, every_steps: int) -> None:
        self._metrics = metrics
        self._every = every_steps
        self._reports: list[StepReport] = []
        self.num_images = 0
        self.seconds = 0.0
        self.data_wait = 0.0

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        self._reports.append(report)
        self.num_images += len(report.batch)
        self.seconds += report.seconds
        self.data_wait += report.data_wait
        if trainer.step % self._every == 0:
            self._write(trainer)

    def end(self, trainer: Trainer) -> None:
        if self._reports:
            self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        reports, self._reports = self._reports, []
        count, seconds = len(reports), sum(r.seconds for r in reports)
        numbers = {"loss": sum(r.loss for r in reports) / count}
        for term in reports[-1].terms:
            numbers[f"loss/{term}"] = sum(r.terms[term] for r in reports) / count
        numbers |= {
            "rate": reports[-1].rate,
            "gradient_norm": sum(r.gradient_norm for r in reports) / count,
            "images_per_second": sum(len(r.batch) for r in reports) / seconds,
            "data_wait": sum(r.data_wait for r in reports) / seconds,
        }
        self._metrics.add(trainer.progress, trainer.elapsed, numbers)
