"""The description of hardware: pure data that can be written, read back, and invented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes


class Speeds(Config, group="speeds"):
    """The speeds of a device, measured or from a data sheet, using all of it that this process may use."""

    gemm: float = Field(gt=0)  # 10^9 operations per second in products of large float32 matrices
    convolution: float = Field(gt=0)  # the same in 3 x 3 convolutions, contiguous
    convolution_channels_last: float = Field(gt=0)
    half: float | None = Field(default=None, gt=0)  # the same in numbers of two bytes; None: not known
    copy_bytes: float = Field(gt=0)  # per second, read and written within its memory
    from_host_bytes: float | None = Field(default=None, gt=0)  # per second; None: it is the host


class Device(Config, group="devices"):
    """A CPU or an accelerator."""

    name: str = Field(min_length=1)  # as torch names it: cpu, cuda:0
    kind: str = Field(min_length=1)  # as torch names it: cpu, cuda (AMD's too), xpu, mps, …
    model: str  # as its maker names it
    memory_bytes: int = Field(gt=0)
    free_bytes: int | None = Field(default=None, ge=0)  # at present; None: not known
    bf16: bool = False  # whether it computes bfloat16 fast, not by emulation
    speeds: Speeds | None = None  # None: not measured


class Link(Config, group="link"):
    """The network between the hosts of a run, as messages to all replicas show it: that of the slowest."""

    bytes_per_second: float = Field(gt=0)  # that each replica can send, while it receives as many
    seconds: float = Field(ge=0)  # that the smallest message to all takes


class Machine(Config):
    """One host as a process on it may use it, within the limits of its container."""

    platform: str
    python: str
    torch: str
    cores: float = Field(gt=0)  # usable at once, by affinity and quota; may be a fraction
    busy_cores: float = Field(default=0, ge=0)  # used by other processes at present
    memory_bytes: int = Field(gt=0)
    numa_nodes: int = Field(default=1, ge=1)
    decoded_pixels: float | None = Field(default=None, gt=0)  # of JPEGs per second and core
    devices: tuple[Device, ...] = Field(min_length=1)  # the CPU first
    link: Link | None = None  # to the other hosts of the run; None: there are none, or it was not measured

    @model_validator(mode="after")
    def _has_a_cpu_and_no_duplicates(self) -> Self:
        names = [device.name for device in self.devices]
        if self.devices[0].kind != "cpu":
            raise UsageError(f"machine: devices: the CPU must be the first, not {names[0]}")
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"machine: devices: {name} is listed twice")
        return self

    @property
    def accelerators(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.kind != "cpu")

    def headline(self) -> str:
        cores = counted(self.cores, "CPU core")
        names = ", ".join(f"{d.model} {format_bytes(d.memory_bytes)}" for d in self.accelerators)
        return f"{cores}, {format_bytes(self.memory_bytes)}, {names or 'no GPU'}"


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine, and the ranks of its replicas."""

    name: str
    machine: Machine
    ranks: tuple[int, ...]  # empty if it has only parameter servers
