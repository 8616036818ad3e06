"""One way to train that the search looks at: all that decides what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from boxcrew.core.units import counted
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import MemoryFormat, Plan, Precision, Strategy, deal_out, equal_parts


@dataclass(frozen=True, kw_only=True)
class Candidate:
    strategy: Strategy
    devices: tuple[Device, ...]  # of the clones of all replicas, in order
    shares: tuple[int, ...]  # samples of a step for each
    replicas: int
    servers: int = 0
    keeper: str  # where the parameters live
    parts: int = 1  # of a step
    recompute: bool = False
    precision: Precision = "fp32"
    memory_format: MemoryFormat = "contiguous"
    threads: int = 1  # of a replica
    workers: int = 0  # of a replica
    cache: int = 0  # bytes of a replica for decoded images

    @property
    def offloaded(self) -> bool:
        """Whether the parameters do not live where they are computed with. Else every replica has its own."""
        has_own = self.strategy in {"single", "ddp", "fsdp"}
        return not has_own and any(device.name != self.keeper for device in self.devices)

    @property
    def on_cpu(self) -> bool:
        return all(device.kind == "cpu" for device in self.devices)

    @property
    def at_once(self) -> tuple[int, ...]:
        """Samples that each clone computes at once, at the most."""
        return tuple(map(max, zip(*self.dealt(), strict=True)))

    def dealt(self) -> tuple[tuple[int, ...], ...]:
        """How many samples each clone computes, part by part."""
        sizes = equal_parts(sum(self.shares), min(self.parts, sum(self.shares)))
        return deal_out(self.shares, tuple(sizes))

    def way(self) -> str:
        return f"{self.memory_format} on {counted(self.threads, 'thread')}"


def candidate_of(plan: Plan, machine: Machine) -> Candidate:
    """What a plan would cost is asked of it; its devices must be there."""
    devices = {device.name: device for device in machine.devices}
    return Candidate(
        strategy=plan.strategy,
        devices=tuple(devices[clone.device] for clone in plan.clones),
        shares=tuple(clone.share for clone in plan.clones),
        replicas=len(plan.replicas),
        servers=plan.servers,
        keeper=plan.parameter_device,
        parts=plan.accumulation,
        recompute=plan.recompute,
        precision=plan.precision,
        memory_format=plan.memory_format,
        threads=plan.threads,
        workers=plan.loader_workers,
        cache=plan.cache_bytes,
    )
