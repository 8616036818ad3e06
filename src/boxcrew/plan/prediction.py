"""The prediction of a plan as data: bytes on every device, and seconds; and in words and a table."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.units import format_bytes, format_duration

Bound = Literal["compute", "input", "communication"]
_BOUNDS = {
    "compute": "compute",
    "input": "data loading: the devices wait for samples",
    "communication": "communication between processes",
}


class Interval(Config, group="seconds"):
    """Seconds: the likely value, and the limits that it will almost surely be between."""

    low: float = Field(ge=0)
    likely: float = Field(ge=0)
    high: float = Field(ge=0)

    @classmethod
    def around(cls, likely: float, spread: float) -> Interval:
        """Return the interval from likely / (1 + spread) to likely * (1 + spread)."""
        return cls(low=likely / (1 + spread), likely=likely, high=likely * (1 + spread))

    def times(self, num: float) -> Interval:
        return Interval(low=self.low * num, likely=self.likely * num, high=self.high * num)

    def plus(self, other: Interval) -> Interval:
        low, likely, high = self.low + other.low, self.likely + other.likely, self.high + other.high
        return Interval(low=low, likely=likely, high=high)

    def __contains__(self, seconds: float) -> bool:
        return self.low <= seconds <= self.high

    def __str__(self) -> str:
        values = (self.likely, self.low, self.high)
        texts = [format_duration(value) if value >= 10 else f"{value:.3g}s" for value in values]
        return "{} ({} to {})".format(*texts)


class Memory(Config, group="memory"):
    """Bytes of one device's memory at the peak, by what they are for."""

    kinds: ClassVar[tuple[str, ...]] = (
        "libraries", "parameters", "gradients", "optimizer", "activations", "inputs", "overhead",
        "evaluation", "workers",
    )  # fmt: skip

    device: str
    libraries: int = Field(ge=0)  # what processes take before they hold any of the model
    parameters: int = Field(ge=0)  # with buffers and averages
    gradients: int = Field(ge=0)
    optimizer: int = Field(ge=0)
    activations: int = Field(ge=0)  # with all other temporary tensors of a step
    inputs: int = Field(ge=0)  # batches
    workers: int = Field(default=0, ge=0)  # loader processes, and the decoded images that they cache
    overhead: int = Field(ge=0)  # of allocators and libraries during a step
    evaluation: int = Field(default=0, ge=0)  # that evaluations take in addition
    margin: int = Field(ge=0)  # by which it may be more
    capacity: int = Field(gt=0)  # bytes that we may use

    @property
    def peak(self) -> int:
        """The expected bytes of everything."""
        return sum(int(getattr(self, kind)) for kind in self.kinds)

    @property
    def process(self) -> int:
        """The expected bytes of the computing processes alone, during a step."""
        return self.peak - self.evaluation - self.workers

    @property
    def measurable(self) -> int:
        """The bytes to be measured after some steps: of processes on the CPU, of tensors elsewhere."""
        return self.process if self.device == "cpu" else self.process - self.libraries

    @property
    def needed(self) -> int:
        """The bytes that are needed at most: the expected ones with the margin."""
        return self.peak + self.margin

    @property
    def is_enough(self) -> bool:
        return self.needed <= self.capacity


class Span(Config, group="timeline"):
    """An activity during a step, with its time in that step."""

    lane: str  # who: a device, a clone, `loader workers` or `messages`
    name: str  # does what: `forward`, `backward`, `update`, `read and transform`, `add up gradients`
    begin: float = Field(ge=0)  # seconds after the step's begin
    end: float = Field(ge=0)


class Prediction(Config, group="predicted"):
    """The time and memory that one plan is expected to take."""

    memory: tuple[Memory, ...] = Field(min_length=1)  # of every device that is used, the CPU first
    step: Interval  # seconds of a step, once decoded images are cached
    first: Interval | None = None  # seconds of a step before that; None: the same
    epoch: Interval  # seconds of an epoch, once decoded images are cached
    run: Interval  # seconds of the whole training
    images_per_second: float = Field(gt=0)
    bound: Bound  # what limits the speed
    timeline: tuple[Span, ...] = ()
    basis: str  # what it is based on, in words such as `device speeds`

    @property
    def at_first(self) -> Interval:
        """Seconds of a step at the beginning of the run."""
        return self.first or self.step

    def on(self, device: str) -> Memory:
        return next(memory for memory in self.memory if memory.device == device)

    def explain(self) -> list[str]:
        """Return the predicted time and memory as lines for people."""
        step, rate = self.step, self.images_per_second
        rate_text = f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}"  # three digits, without an exponent
        memory = [
            f"{format_bytes(each.peak)} on {each.device}, "
            f"at most {format_bytes(each.needed)} of {format_bytes(each.capacity)}"
            for each in self.memory
        ]
        return [
            f"expected: {step.likely:.3g} s per step ({step.low:.3g} to {step.high:.3g}), "
            f"{rate_text} samples/s, limited by {_BOUNDS[self.bound]}",
            f"expected: {self.epoch} per epoch, {self.run} for all steps, based on {self.basis}",
            f"expected memory: {'; '.join(memory)}",
        ]

    def memory_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return column titles and rows: bytes of each kind on each device. Equal devices share a column."""
        devices: dict[Memory, list[str]] = {}
        for memory in self.memory:
            devices.setdefault(memory.model_copy(update={"device": ""}), []).append(memory.device)
        groups = devices.values()
        titles = [same[0] if len(same) == 1 else f"{len(same)} x {same[0]}…" for same in groups]
        names = {kind: kind for kind in Memory.kinds}
        names |= {"total": "peak", "at most": "needed", "available": "capacity"}
        rows = [
            (row, *(format_bytes(getattr(each, name)) for each in devices)) for row, name in names.items()
        ]
        return ("memory", *titles), rows
