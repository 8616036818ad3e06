"""Images that could not be read, named as they are met."""

from __future__ import annotations

from boxcrew.train.loop.trainer import Hook, StepReport, Trainer
from boxcrew.train.output.screen import Screen


class SkippedReport(Hook):
    name = "skipped"

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        for problem in report.skipped:
            self._screen.warn(f"step {trainer.step}: left out: {problem}")
