"""A pause at a step that was decided beforehand: the run saves its state there, and can be resumed."""

from __future__ import annotations

from boxcrew.train.loop.trainer import Hook, StepReport, Trainer


class Pause(Hook):
    """Interrupts the run once `step` steps are done; None never does. An evaluation that is due at that step
    comes before.
    """

    name = "pause"

    def __init__(self, step: int | None) -> None:
        self._step = step

    def begin(self, trainer: Trainer) -> None:
        if self._step is not None and trainer.step >= self._step:
            trainer.interrupt(f"paused at step {self._step}")

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        self.begin(trainer)
