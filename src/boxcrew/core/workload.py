"""The cost of training a task, whatever the hardware: bytes, operations and the time to make inputs."""

from __future__ import annotations

from pydantic import Field

from boxcrew.core.config import Config


class LinearBytes(Config, group="line"):
    """A number of bytes that grows linearly with the number of samples."""

    fixed: int
    each: int = Field(ge=0)  # per sample

    def at(self, num_samples: int) -> int:
        return self.fixed + self.each * num_samples


class Peak(Config, group="peak"):
    """The most bytes at any moment of a step. Which moment that is depends on the number of samples."""

    moments: tuple[LinearBytes, ...] = Field(min_length=1)

    def at(self, num_samples: int) -> int:
        return max(moment.at(num_samples) for moment in self.moments)


class PassCost(Config, group="pass"):
    """The cost of forward and backward of some samples at once."""

    activations: LinearBytes  # bytes that forward keeps for backward
    peak: Peak  # bytes at most, gradients and activations included
    operations: int = Field(ge=0)  # per sample, in convolutions and matrix products; a multiply-add is two
    traffic: int = Field(ge=0)  # bytes per sample that operations read and write


class InputCost(Config, group="inputs"):
    """The cost of making samples, measured on one core."""

    seconds: float = Field(gt=0)  # per sample: read, decode, transform
    cached_seconds: float = Field(gt=0)  # per sample whose decoded image is cached
    image_bytes: int = Field(ge=0)  # of a decoded image; 0: nothing has to be decoded


class Workload(Config, group="workload"):
    """The cost of one step of a task. Bytes are those of tensors; allocators and libraries need more."""

    parameters: int = Field(ge=0)  # bytes
    gradients: int = Field(ge=0)  # bytes of the parameters that learn
    buffers: int = Field(ge=0)  # bytes
    largest_layer: int = Field(ge=0)  # bytes of the parameters of the largest one
    slots: int = Field(ge=0)  # tensors that the optimizer keeps for each parameter that learns
    averages: int = Field(ge=0, le=1)  # whether moving averages of parameters and buffers are kept
    batch: LinearBytes  # bytes of a batch
    without_recompute: PassCost
    evaluation_peak: Peak = Peak(moments=(LinearBytes(fixed=0, each=0),))  # bytes at most during evaluation
    with_recompute: PassCost | None = None  # with activations computed again in backward; None: not measured
    forward_operations: int = Field(ge=0)  # per sample
    min_samples: int = Field(default=1, ge=1)  # that can be computed at once
    depthwise: bool = False  # whether the network has depthwise convolutions
    inputs: InputCost | None = None  # None: not measured

    @property
    def model_bytes(self) -> int:
        """The bytes of parameters, buffers and their averages."""
        return (self.parameters + self.buffers) * (1 + self.averages)

    @property
    def optimizer(self) -> int:
        """The bytes that the optimizer keeps."""
        return self.slots * self.gradients

    def pass_of(self, *, recompute: bool) -> PassCost:
        if not recompute:
            return self.without_recompute
        assert self.with_recompute is not None, "not measured"
        return self.with_recompute

    def peak_bytes(self, num_samples: int, *, recompute: bool = False) -> int:
        """Return the most bytes in use during a step that computes so many samples at once."""
        step = self.pass_of(recompute=recompute).peak.at(num_samples)
        return self.model_bytes + self.optimizer + self.batch.at(num_samples) + step
