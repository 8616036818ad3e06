"""Who does what where in a run, as data: written to `plan.json`, editable by hand, replayed with `plan=`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.units import format_bytes

Precision = Literal["fp32", "bf16", "fp16"]
MemoryFormat = Literal["contiguous", "channels_last"]


class Plan(Config):
    strategy: str = "single"  # a name in `deploy.STRATEGIES`
    clone_device: str  # where the model's clone computes
    parameter_device: str
    optimizer_device: str
    inputs_device: str = "cpu"
    batch: int = Field(ge=1)  # samples a step
    accumulation: int = Field(default=1, ge=1)  # micro-batches a step: the same gradient in less memory
    precision: Precision = "fp32"
    memory_format: MemoryFormat = "contiguous"
    threads: int = Field(ge=1)  # of the compute process
    loader_workers: int = Field(ge=0)
    cache_bytes: int = Field(default=0, ge=0)  # of main memory for decoded images
    reasons: tuple[str, ...] = ()

    def micro_batches(self, num_samples: int) -> list[int]:
        """Sizes of the parts that `num_samples` are computed in: as equal as can be."""
        parts = min(self.accumulation, num_samples)
        small, extra = divmod(num_samples, parts)
        return [small + 1] * extra + [small] * (parts - extra)

    def because(self, reason: str) -> Plan:
        """The same with one reason more."""
        return self.model_copy(update={"reasons": (*self.reasons, reason)})

    def explain(self) -> list[str]:
        """Lines for people."""
        batch = f"batch {self.batch}"
        if self.accumulation > 1:
            batch += f" in {self.accumulation} parts"
        cache = f", {format_bytes(self.cache_bytes)} for decoded images" if self.cache_bytes else ""
        return [
            f"{self.strategy} on {self.clone_device}, {batch}, {self.precision}, {self.memory_format}, "
            f"{self.threads} threads, {self.loader_workers} loader workers{cache}",
            *self.reasons,
        ]
