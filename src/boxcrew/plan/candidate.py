"""A candidate is one way to train that the search considers: everything that decides its cost."""

from __future__ import annotations

from dataclasses import dataclass

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.dealing import deal, distribute
from boxcrew.plan.observed import Observed
from boxcrew.plan.plan import MemoryFormat, Plan, Precision, Strategy
from boxcrew.plan.request import PlanRequest

CHOICES = (
    "strategy", "servers", "exact", "parameter_device", "accumulation", "recompute", "precision",
    "memory_format", "threads", "loader_workers", "cache_bytes",
)  # fmt: skip
"""The fields that a candidate and its plan have in common."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    strategy: Strategy
    devices: tuple[Device, ...]  # of the clones of all replicas, in order
    shares: tuple[int, ...]  # samples per step of each clone
    replicas: int
    exact: bool = True  # sums of ddp in the order of the clones
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

    @property
    def turns(self) -> tuple[range, ...]:
        """Groups of clones that compute one after the other. With ddp, those of one replica are a group; with
        other strategies every clone is a group of its own.
        """
        num = len(self.devices)
        return deal(num, self.replicas if self.strategy == "ddp" else num)

    @property
    def at_once(self) -> list[tuple[Device, int]]:
        """The device and the most samples of each clone, of those in turn only the one with the most."""
        sizes = self.largest_micro_batches
        return [(self.devices[own[0]], max(sizes[own[0] : own[-1] + 1])) for own in self.turns]

    @property
    def ordered_rows(self) -> tuple[int, ...]:
        """The gradients that each replica of ddp sends where they are added up in the order of the clones;
        none where each sends its sum, as is enough for two.
        """
        rows = (1, *map(len, self.turns[1:]))
        is_ordered = self.strategy == "ddp" and self.exact and sum(rows) > 2
        return rows if is_ordered else ()

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
