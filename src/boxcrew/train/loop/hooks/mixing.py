"""The end of mosaics and other mixed samples: the last steps of a run see plain ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import Deployment
from boxcrew.train.loop.schedule import RunLimits
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer

MakeBatches = Callable[[Deployment, int | None], Callable[[int], Iterator[Batch]]]
"""Gives the batches of a loader that mixes the samples of so many first steps; None: of all."""


class LastUnmixed(Hook):
    """Mixes samples in the first `fraction` of a run only. If steps alone limit it, `mixed_steps` is known at
    once; if time does, it is None until the fraction is reached, and the batches are then those of another
    loader.
    """

    name = "unmixed"

    def __init__(self, limits: RunLimits, fraction: float, *, batches: MakeBatches) -> None:
        self._fraction = fraction
        self._batches = batches
        self.mixed_steps: int | None = None
        if limits.seconds is None:
            self.mixed_steps = math.ceil(fraction * limits.steps - 1e-9)

    def begin(self, trainer: Trainer) -> None:
        if self.mixed_steps is None and self._fraction <= trainer.progress.fraction < 1:
            self.mixed_steps = trainer.step
            trainer.replace_batches(self._batches(trainer.deployment, trainer.step))

    def after_step(self, trainer: Trainer, report: StepReport) -> None:  # noqa: ARG002
        self.begin(trainer)
