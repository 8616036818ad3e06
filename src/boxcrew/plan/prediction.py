"""What a plan is expected to take: bytes on every device and seconds, as data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.units import format_duration

Bound = Literal["compute", "input", "communication"]


class Interval(Config):
    """Seconds: what is likely, and between what it will almost surely be."""

    group = "seconds"

    low: float = Field(ge=0)
    likely: float = Field(ge=0)
    high: float = Field(ge=0)

    @classmethod
    def around(cls, likely: float, spread: float) -> Interval:
        """`spread` 0.2: from likely / 1.2 to likely * 1.2."""
        return cls(low=likely / (1 + spread), likely=likely, high=likely * (1 + spread))

    def times(self, num: float) -> Interval:
        return Interval(low=self.low * num, likely=self.likely * num, high=self.high * num)

    def plus(self, other: Interval) -> Interval:
        return Interval(
            low=self.low + other.low, likely=self.likely + other.likely, high=self.high + other.high
        )

    def __contains__(self, seconds: float) -> bool:
        return self.low <= seconds <= self.high

    def __str__(self) -> str:
        low, likely, high = map(_told, (self.low, self.likely, self.high))
        return f"{likely} ({low} to {high})"


def _told(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 10 else f"{seconds:.3g}s"


class Memory(Config):
    """Bytes of one device's memory at the peak, by what they are for."""

    group = "memory"
    kinds: ClassVar[tuple[str, ...]] = (
        "libraries", "parameters", "gradients", "optimizer", "activations", "inputs", "overhead",
        "evaluation", "workers",
    )  # fmt: skip

    device: str
    libraries: int = Field(ge=0)  # what processes take before they hold any of the model
    parameters: int = Field(ge=0)  # with buffers and averages
    gradients: int = Field(ge=0)
    optimizer: int = Field(ge=0)
    activations: int = Field(ge=0)  # with all else that a step makes for a while
    inputs: int = Field(ge=0)  # batches
    workers: int = Field(default=0, ge=0)  # loader processes, and the decoded images that they keep
    overhead: int = Field(ge=0)  # of allocators and libraries during a step
    evaluation: int = Field(default=0, ge=0)  # that evaluations take besides
    margin: int = Field(ge=0)  # by which it may be more
    capacity: int = Field(gt=0)  # what there is for us

    @property
    def peak(self) -> int:
        """That is expected."""
        return self.process + self.evaluation + self.workers

    @property
    def process(self) -> int:
        """The same of the processes that compute alone, during a step."""
        known = (self.libraries, self.parameters, self.gradients, self.optimizer)
        return sum(known) + self.activations + self.inputs + self.overhead

    @property
    def measurable(self) -> int:
        """What a look at processes that compute on the CPU, or at their tensors elsewhere, should find after
        some steps.
        """
        return self.process if self.device == "cpu" else self.process - self.libraries

    @property
    def needed(self) -> int:
        """At the most."""
        return self.peak + self.margin

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity


class Span(Config):
    """Something that is done during a step, on the clock of that step."""

    group = "timeline"

    lane: str  # who: a device, `loader workers`, `network`
    name: str  # does what: `forward`, `backward`, `update`, `read and transform`, `add up gradients`
    begin: float = Field(ge=0)  # seconds after the step's begin
    end: float = Field(ge=0)


class Prediction(Config):
    """Of one plan."""

    group = "predicted"

    memory: tuple[Memory, ...] = Field(min_length=1)  # of every device that holds something, the CPU first
    step: Interval  # seconds of a step, once decoded images are kept
    first: Interval | None = None  # seconds of a step before; None: the same
    epoch: Interval  # seconds of an epoch, once decoded images are kept
    run: Interval  # seconds of the whole training
    images_per_second: float = Field(gt=0)
    bound: Bound  # what a step waits for
    timeline: tuple[Span, ...] = ()
    basis: str  # what it rests on, in words: `two steps in a child process`, `the machine's speeds`

    @property
    def at_first(self) -> Interval:
        """Seconds of a run's first steps."""
        return self.first or self.step

    def on(self, device: str) -> Memory:
        return next(one for one in self.memory if one.device == device)
