"""What training a task takes, whatever the hardware: bytes, operations, the cost of inputs, as data."""

from __future__ import annotations

from pydantic import Field

from boxcrew.core.config import Config


class Line(Config):
    """Something that grows with the number of samples, in bytes."""

    group = "line"

    fixed: int
    each: int = Field(ge=0)  # for each sample

    def at(self, num_samples: int) -> int:
        return self.fixed + self.each * num_samples


class Peak(Config):
    """The most that there is at any moment. At some it is what grows with the samples, at others what does
    not: which is more depends on how many they are.
    """

    group = "peak"

    moments: tuple[Line, ...] = Field(min_length=1)

    def at(self, num_samples: int) -> int:
        return max(moment.at(num_samples) for moment in self.moments)


NOTHING = Peak(moments=(Line(fixed=0, each=0),))


class Pass(Config):
    """Forward and backward of some samples at once."""

    group = "pass"

    activations: Line  # bytes that forward keeps for backward
    peak: Peak  # bytes at the most, gradients and activations among them
    operations: int = Field(ge=0)  # of a sample, in convolutions and products; two for each number multiplied
    traffic: int = Field(ge=0)  # bytes of a sample that operations read and write


class Inputs(Config):
    """What it takes to make samples, measured on one core."""

    group = "inputs"

    seconds: float = Field(gt=0)  # a sample: read, decode, transform
    kept_seconds: float = Field(gt=0)  # the same of an image that is kept decoded
    image_bytes: int = Field(ge=0)  # of a decoded image; 0: nothing has to be decoded


class Workload(Config):
    """One step of a task. Bytes are of what tensors hold: what allocators and libraries take besides is the
    machine's.
    """

    group = "workload"

    parameters: int = Field(ge=0)  # bytes
    gradients: int = Field(ge=0)  # bytes of the parameters that learn
    buffers: int = Field(ge=0)  # bytes
    largest_layer: int = Field(ge=0)  # bytes of the parameters of one
    slots: int = Field(ge=0)  # tensors that the optimizer keeps for each parameter that learns
    averages: int = Field(ge=0, le=1)  # whether moving averages of parameters and buffers are kept
    batch: Line  # bytes of a batch
    whole: Pass
    evaluated: Peak = NOTHING  # bytes at the most while samples are only looked at
    recomputed: Pass | None = None  # with activations computed again in backward; None: not looked at
    forward_operations: int = Field(ge=0)  # of a sample
    least_samples: int = Field(default=1, ge=1)  # that can be computed at once
    depthwise: bool = False  # whether the network has depthwise convolutions
    inputs: Inputs | None = None  # None: not measured

    @property
    def held(self) -> int:
        """Bytes of parameters, buffers and their averages."""
        return (self.parameters + self.buffers) * (1 + self.averages)

    @property
    def optimizer(self) -> int:
        """Bytes that the optimizer keeps."""
        return self.slots * self.gradients

    def pass_of(self, *, recompute: bool) -> Pass:
        if not recompute:
            return self.whole
        assert self.recomputed is not None, "not looked at"
        return self.recomputed

    def peak_bytes(self, num_samples: int, *, recompute: bool = False) -> int:
        """At the most in a step of so many samples at once."""
        step = self.pass_of(recompute=recompute).peak.at(num_samples)
        return self.held + self.optimizer + self.batch.at(num_samples) + step
