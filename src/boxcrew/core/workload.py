"""What training a task takes, whatever the hardware: bytes and operations, as data."""

from __future__ import annotations

from pydantic import Field

from boxcrew.core.config import Config


class Line(Config):
    """Something that grows with the number of samples, in bytes."""

    group = "line"

    fixed: int = Field(ge=0)
    each: int = Field(ge=0)  # for each sample

    def at(self, num_samples: int) -> int:
        return self.fixed + self.each * num_samples


class Workload(Config):
    """One step of a task. Bytes are of what tensors hold: what allocators and libraries take besides is the
    machine's.
    """

    group = "workload"

    parameters: int = Field(ge=0)  # bytes
    gradients: int = Field(ge=0)  # bytes of the parameters that learn
    buffers: int = Field(ge=0)  # bytes
    slots: int = Field(ge=0)  # tensors that the optimizer keeps for each parameter that learns
    averages: int = Field(ge=0, le=1)  # whether moving averages of parameters and buffers are kept
    inputs: Line  # bytes of a batch
    activations: Line  # bytes that forward keeps for backward
    step: Line  # bytes at the most during forward and backward, gradients and activations among them
    flops: int = Field(ge=0)  # operations of a sample's forward; backward does twice as many

    def kept_bytes(self) -> int:
        """That stay from step to step: parameters, buffers, the optimizer's and the averages."""
        whole = self.parameters + self.buffers
        return whole * (1 + self.averages) + self.slots * self.gradients

    def peak_bytes(self, num_samples: int) -> int:
        """At the most in a step of so many samples at once."""
        return self.kept_bytes() + self.inputs.at(num_samples) + self.step.at(num_samples)
