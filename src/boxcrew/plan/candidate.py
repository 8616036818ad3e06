"""A candidate is one way to train that the search considers: everything that decides its cost."""

from __future__ import annotations

from dataclasses import dataclass

from boxcrew.core.units import counted
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import MemoryFormat, Plan, Precision, Strategy, distribute, equal_sizes


@dataclass(frozen=True, kw_only=True)
class Candidate:
    strategy: Strategy
    devices: tuple[Device, ...]  # of the clones of all replicas, in order
    shares: tuple[int, ...]  # samples per step of each clone
    replicas: int
    servers: int = 0
    parameter_device: str
    accumulation: int = 1  # micro-batches per step
    recompute: bool = False
    precision: Precision = "fp32"
    memory_format: MemoryFormat = "contiguous"
    threads: int = 1  # per replica
    workers: int = 0  # per replica
    cache: int = 0  # bytes per replica for decoded images

    @property
    def offloaded(self) -> bool:
        """True if parameters live on another device than the one that computes with them."""
        keeps_own = self.strategy in {"single", "ddp", "fsdp"}
        return not keeps_own and any(device.name != self.parameter_device for device in self.devices)

    @property
    def on_cpu(self) -> bool:
        return all(device.kind == "cpu" for device in self.devices)

    @property
    def largest_micro_batches(self) -> tuple[int, ...]:
        """The most samples that each clone computes at once."""
        return tuple(map(max, zip(*self.split(), strict=True)))

    def split(self) -> tuple[tuple[int, ...], ...]:
        """Return how many samples each clone computes, for every micro-batch."""
        sizes = equal_sizes(sum(self.shares), min(self.accumulation, sum(self.shares)))
        return distribute(self.shares, tuple(sizes))

    def compute_mode(self) -> str:
        return f"{self.memory_format} on {counted(self.threads, 'thread')}"


def candidate_of(plan: Plan, machine: Machine) -> Candidate:
    """Return the candidate with a plan's choices; the machine must have its devices."""
    devices = {device.name: device for device in machine.devices}
    return Candidate(
        strategy=plan.strategy,
        devices=tuple(devices[clone.device] for clone in plan.clones),
        shares=tuple(clone.share for clone in plan.clones),
        replicas=len(plan.replicas),
        servers=plan.servers,
        parameter_device=plan.parameter_device,
        accumulation=plan.accumulation,
        recompute=plan.recompute,
        precision=plan.precision,
        memory_format=plan.memory_format,
        threads=plan.threads,
        workers=plan.loader_workers,
        cache=plan.cache_bytes,
    )
