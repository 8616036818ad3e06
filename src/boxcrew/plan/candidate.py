"""A candidate is one way to train that the search considers: everything that decides its cost."""

from __future__ import annotations

from dataclasses import dataclass

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.dealing import distribute
from boxcrew.plan.observed import Observed
from boxcrew.plan.plan import MemoryFormat, Plan, Precision, Strategy
from boxcrew.plan.request import PlanRequest

CHOICES = (
    "strategy", "servers", "parameter_device", "accumulation", "recompute", "precision", "memory_format",
    "threads", "loader_workers", "cache_bytes",
)  # fmt: skip
"""The fields that a candidate and its plan have in common."""


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
    loader_workers: int = 0  # per replica
    cache_bytes: int = 0  # per replica, for decoded images
    reason: str = ""  # for these devices

    @property
    def offloaded(self) -> bool:
        """True if parameters live on another device than the one that computes with them."""
        keeps_own = self.strategy in {"single", "ddp", "fsdp"}
        return not keeps_own and any(device.name != self.parameter_device for device in self.devices)

    @property
    def on_cpu(self) -> bool:
        return all(device.kind == "cpu" for device in self.devices)

    @property
    def shards(self) -> int:
        """The number of replicas that the parameters are divided among."""
        return self.replicas if self.strategy == "fsdp" else 1

    @property
    def largest_micro_batches(self) -> tuple[int, ...]:
        """The most samples that each clone computes at once."""
        return tuple(map(max, zip(*self.split(), strict=True)))

    def split(self) -> tuple[tuple[int, ...], ...]:
        """Return how many samples each clone computes, for every micro-batch."""
        return distribute(self.shares, sum(self.shares), self.accumulation)


def candidate_of(plan: Plan, machine: Machine) -> Candidate:
    """Return the candidate with a plan's choices; the machine must have its devices."""
    devices = {device.name: device for device in machine.devices}
    return Candidate(
        devices=tuple(devices[clone.device] for clone in plan.clones),
        shares=tuple(clone.share for clone in plan.clones),
        replicas=len(plan.replicas),
        **{name: getattr(plan, name) for name in CHOICES},
    )


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """All that the costs of candidates depend on."""

    machine: Machine
    workload: Workload
    request: PlanRequest
    observed: Observed
