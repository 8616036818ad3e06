"""The limits of a run, its progress towards them, and the learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from boxcrew.core.config import Config, commas

ENDLESS = 2**62  # the steps of a run that only `time` limits


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """The limits of a run, which ends at the first that it reaches."""

    steps: int  # ENDLESS if only time bounds the run
    seconds: float | None
    steps_per_epoch: float

    @classmethod
    def of(
        cls, *, steps: int | None, epochs: float | None, seconds: float | None, num_samples: int, batch: int
    ) -> RunLimits:
        limits = [] if steps is None else [steps]
        if epochs is not None:
            # A little less, so that rounding errors do not turn a whole number into the next one.
            limits.append(math.ceil(epochs * num_samples / batch - 1e-9))
        bound = max(1, min(limits, default=ENDLESS if seconds else 1))
        return cls(steps=bound, seconds=seconds, steps_per_epoch=num_samples / batch)

    @property
    def bounded_by_steps(self) -> bool:
        return self.steps != ENDLESS

    def progress(self, step: int, elapsed: float) -> Progress:
        """Return the progress of a run after `step` steps and `elapsed` seconds of training."""
        by_time = elapsed / self.seconds if self.seconds else 0.0
        fraction = min(1.0, max(step / self.steps, by_time))
        return Progress(step=step, epoch=step / self.steps_per_epoch, fraction=fraction)


@dataclass(frozen=True, kw_only=True)
class Progress:
    step: int  # steps done
    epoch: float  # passes over the data done
    fraction: float  # of the run, 0..1


class ScheduleConfig(Config):
    """The learning rate over a run, as a factor of `optim.rate`. Lengths are fractions of the run, so that no
    schedule ends early or rounds to nothing on a small data set.
    """

    group = "schedule"
    shorthand = "name"

    name: Literal["fixed", "exponential", "polynomial", "cosine", "step"] = "cosine"
    """Course of the learning rate."""
    warmup: float = Field(default=0.03, ge=0, lt=1)
    """Fraction of the run in which the rate rises linearly."""
    end: float = Field(default=0.01, ge=0, le=1)
    """Factor of the rate at the end (polynomial, cosine), or its floor (exponential)."""
    power: float = Field(default=1.0, gt=0)
    """Power of the polynomial."""
    decay: float | None = Field(default=None, gt=0, le=1)
    """Factor of one decay; by default 0.94 for exponential and 0.1 for step."""
    every: float = Field(default=2.0, gt=0)
    """Epochs between decays (exponential)."""
    staircase: bool = True
    """Decay in jumps rather than smoothly (exponential)."""
    at: Annotated[tuple[float, ...], commas] = (0.67, 0.89)
    """Fractions of the run at which the rate decays (step)."""

    def factor(self, progress: Progress) -> float:
        """Return the factor of the rate for the next step."""
        warm = 1.0
        if self.warmup > 0:
            # Not from zero, so that the first step already changes the parameters.
            warm = min(1.0, (progress.fraction + self.warmup * 0.01) / self.warmup)
        return warm * self._decayed(progress)

    def _decayed(self, progress: Progress) -> float:
        match self.name:
            case "fixed":
                return 1.0
            case "exponential":
                decays = progress.epoch / self.every
                power = math.floor(decays) if self.staircase else decays
                return max(self.end, (self.decay or 0.94) ** power)
            case "polynomial":
                return self.end + (1 - self.end) * math.pow(1 - progress.fraction, self.power)
            case "cosine":
                return self.end + (1 - self.end) * (1 + math.cos(math.pi * progress.fraction)) / 2
            case "step":
                return (self.decay or 0.1) ** sum(progress.fraction >= share for share in self.at)


@dataclass(frozen=True, kw_only=True)
class TrainingSchedule:
    """The limits of a run, the learning rate and gradient clipping of its steps, and their seed."""

    limits: RunLimits
    config: ScheduleConfig
    peak_rate: float
    clip: float | None  # the largest gradient norm; larger gradients are scaled down
    seed: int
