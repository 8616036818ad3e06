"""What was measured of a task on this machine: single steps before a run, and whole runs before this one."""

from __future__ import annotations

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.plan.plan import MemoryFormat, Precision


class Timing(Config):
    """Steps of so many samples at once, on one device."""

    group = "timings"

    device: str
    memory_format: MemoryFormat
    threads: int = Field(ge=1)
    precision: Precision
    samples: int = Field(ge=1)
    seconds: float = Field(gt=0)  # of a step with its update
    core_seconds: float | None = Field(default=None, gt=0)  # of all threads together
    num_bytes: int | None = Field(default=None, gt=0)  # at the peak, besides what was there before the model
    alone: bool = False  # with nothing beside: not in a run


class ObservedRatio(Config):
    """How far off the last predictions of a way to compute were: measured / predicted."""

    group = "residuals"

    device: str
    memory_format: MemoryFormat
    precision: Precision = "fp32"
    seconds: float = Field(gt=0)  # of forward, backward and update
    num_bytes: float = Field(gt=0)


class Observed(Config):
    """For one task on one machine."""

    group = "knowledge"

    timings: tuple[Timing, ...] = ()
    failures: tuple[str, ...] = ()  # ways that could not be tried, and why
    too_many: int | None = Field(default=None, ge=1)  # samples at once that were found not to fit
    ratios: tuple[ObservedRatio, ...] = ()
    libraries: int | None = Field(default=None, ge=0)  # bytes of a process before it holds any of the model

    def on_device(self, device: str, precision: Precision) -> list[Timing]:
        """In any way, the smallest first."""
        found = [one for one in self.timings if (one.device, one.precision) == (device, precision)]
        return sorted(found, key=lambda one: one.samples)

    def steps_on(
        self, device: str, memory_format: MemoryFormat, precision: Precision, threads: int | None = None
    ) -> list[Timing]:
        """The smallest first. With any number of threads, if not said."""
        return [
            one
            for one in self.on_device(device, precision)
            if one.memory_format == memory_format and threads in {None, one.threads}
        ]

    def ratio(self, device: str, memory_format: MemoryFormat, precision: Precision) -> ObservedRatio | None:
        for one in self.ratios:
            if (one.device, one.memory_format, one.precision) == (device, memory_format, precision):
                return one
        return None
