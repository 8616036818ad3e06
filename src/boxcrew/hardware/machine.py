"""The hardware, described: pure data that can be written, read back, and made up."""

from __future__ import annotations

from typing import Literal

from boxcrew.core.config import Config
from boxcrew.core.units import format_bytes


class Device(Config):
    """One thing that computes."""

    name: str  # as torch names it: cpu, cuda:0
    kind: Literal["cpu", "cuda", "xpu", "mps"]
    model: str  # as its maker names it
    memory_bytes: int
    bf16: bool = False  # whether it computes bfloat16 fast, not by emulation


class Machine(Config):
    """One host as a process on it may use it: container limits are already taken off."""

    platform: str
    python: str
    torch: str
    cores: float  # usable at once: affinity and quota respected, so it may be a fraction
    memory_bytes: int
    devices: tuple[Device, ...]  # the CPU first

    @property
    def accelerators(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.kind != "cpu")

    def headline(self) -> str:
        cores = f"{self.cores:g} CPU core{'s' if self.cores != 1 else ''}"
        names = ", ".join(f"{d.model} {format_bytes(d.memory_bytes)}" for d in self.accelerators)
        return f"{cores}, {format_bytes(self.memory_bytes)}, {names or 'no GPU'}"
