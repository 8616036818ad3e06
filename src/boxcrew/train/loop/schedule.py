"""How long a run is, how far it has come, and what the learning rate is there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from boxcrew.core.config import Config, commas

# A run that only `time` bounds has no last step; this stands for it where a number is needed.
ENDLESS = 2**62


@dataclass(frozen=True, kw_only=True)
class Length:
    """The limits of a run; it ends at the first that is reached."""

    steps: int  # ENDLESS if only time bounds the run
    seconds: float | None
    steps_per_epoch: float

    @classmethod
    def of(
        cls,
        *,
        steps: int | None,
        epochs: float | None,
        seconds: float | None,
        num_samples: int,
        batch: int,
    ) -> Length:
        per_epoch = num_samples / batch
        limits = [ENDLESS if seconds else 0]
        if steps is not None:
            limits.append(steps)
        if epochs is not None:
            # Less a hair, so that what is a whole number but for rounding is not taken for the next one.
            limits.append(max(1, math.ceil(epochs * num_samples / batch - 1e-9)))
        given = [limit for limit in limits if limit] or [1]
        return cls(steps=max(1, min(given)), seconds=seconds, steps_per_epoch=per_epoch)

    @property
    def bounded_by_steps(self) -> bool:
        return self.steps != ENDLESS

    def progress(self, step: int, elapsed: float) -> Progress:
        """Where a run stands that has done `step` steps in `elapsed` seconds."""
        by_time = elapsed / self.seconds if self.seconds else 0.0
        fraction = min(1.0, max(step / self.steps, by_time))
        return Progress(step=step, epoch=step / self.steps_per_epoch, fraction=fraction)


@dataclass(frozen=True, kw_only=True)
class Progress:
    step: int  # steps done
    epoch: float  # passes over the data done
    fraction: float  # of the whole run, 0..1


class ScheduleConfig(Config):
    """The rate over a run, as a factor of `optim.rate`. Lengths are shares of the run, so that no schedule
    ends early or rounds to nothing on a small set.
    """

    group = "schedule"
    shorthand = "name"

    name: Literal["fixed", "exponential", "polynomial", "cosine", "step"] = "cosine"
    warmup: float = Field(default=0.03, ge=0, lt=1)  # share of the run in which the rate rises linearly
    end: float = Field(default=0.01, ge=0, le=1)  # factor at the end: polynomial, cosine; floor: exponential
    power: float = Field(default=1.0, gt=0)  # polynomial
    decay: float | None = Field(default=None, gt=0, le=1)  # of one decay: exponential (0.94), step (0.1)
    every: float = Field(default=2.0, gt=0)  # exponential: epochs between decays
    staircase: bool = True  # exponential: in jumps
    at: Annotated[tuple[float, ...], commas] = (
        0.67,
        0.89,
    )  # step: shares of the run after which the rate falls

    def factor(self, progress: Progress) -> float:
        """The multiplier of the rate for the next step."""
        warm = 1.0
        if self.warmup > 0:
            # The first step already moves: from one step's worth of warm-up, not from zero.
            warm = min(1.0, (progress.fraction + self.warmup * 0.01) / self.warmup)
        return warm * self._decayed(progress)

    def _decayed(self, progress: Progress) -> float:
        match self.name:
            case "fixed":
                return 1.0
            case "exponential":
                decays = progress.epoch / self.every
                return max(
                    self.end, (self.decay or 0.94) ** (math.floor(decays) if self.staircase else decays)
                )
            case "polynomial":
                return self.end + (1 - self.end) * math.pow(1 - progress.fraction, self.power)
            case "cosine":
                return self.end + (1 - self.end) * (1 + math.cos(math.pi * progress.fraction)) / 2
            case "step":
                return (self.decay or 0.1) ** sum(progress.fraction >= share for share in self.at)


@dataclass(frozen=True, kw_only=True)
class Course:
    """How long a run is, how far its steps may go on the way, and what they draw at random."""

    length: Length
    schedule: ScheduleConfig
    rate: float  # at its height
    clip: float | None  # the largest norm of a gradient that is stepped with
    seed: int

    def rate_at(self, progress: Progress) -> float:
        """Of the next step."""
        return self.rate * self.schedule.factor(progress)
