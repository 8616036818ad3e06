"""A plan says who does what where in a run. It is data: written to `plan.json`, replayed with `plan=`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes
from boxcrew.plan.dealing import deal, distribute, micro_batch_sizes
from boxcrew.plan.prediction import Prediction

Strategy = Literal["single", "clones", "ddp", "fsdp", "parameter_server"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
"""The precision of convolutions and matrix products; tf32 is fp32 with rounding on recent accelerators."""
MemoryFormat = Literal["contiguous", "channels_last"]
BatchNorm = Literal["first", "synced", "frozen"]
"""Whose statistics BatchNorm keeps: the `first` clone's, while each clone is normalized by its own (the rule
of the classic systems); those of all clones together (`synced`); or the initial ones (`frozen`).
"""


class Clone(Config, group="clones"):
    """One copy of the task on one device."""

    device: str
    share: int = Field(ge=1)  # samples per step


class Replica(Config, group="replicas"):
    """One process with its clones."""

    clones: tuple[Clone, ...] = Field(min_length=1)


class Plan(Config):
    task: str | None = None  # such as `detection by ssdlite`; None: for any task
    strategy: Strategy = "single"
    replicas: tuple[Replica, ...] = Field(min_length=1)  # the first is chief
    servers: int = Field(default=0, ge=0)  # processes that hold the parameters, for strategy parameter_server
    staleness: int | None = Field(default=None, ge=0)  # steps that a replica may be ahead; None: synchronous
    parameter_device: str
    optimizer_device: str
    inputs_device: str = "cpu"
    batch: int = Field(ge=1)  # samples per step, over all clones
    accumulation: int = Field(default=1, ge=1)  # micro-batches per step: the same gradient in less memory
    recompute: bool = False  # activations in backward instead of keeping them: the same in less memory
    batch_norm: BatchNorm = "first"
    exact: bool = (
        True  # strategy ddp adds up in the order of clones: the same bits for any number of replicas
    )
    precision: Precision = "fp32"
    memory_format: MemoryFormat = "contiguous"
    threads: int = Field(ge=1)  # of a replica's process, shared by its clones on the CPU
    loader_workers: int = Field(ge=0)  # of a replica
    pinned: bool = False  # each replica to its own cores, on one NUMA node
    memory_fraction: float | None = Field(default=None, gt=0, le=1)  # of each device's memory, at most
    cache_bytes: int = Field(default=0, ge=0)  # of main memory for decoded images
    goal: str = "fastest"
    predicted: Prediction | None = None  # None: not predicted, such as for several hosts
    reasons: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()  # the alternatives, and why they were not chosen

    @model_validator(mode="after")
    def _can_be_executed(self) -> Self:
        """Refuse what no strategy can do: plans may be written by hand."""
        for is_wrong, problem, advice in chain(self._checks(), self._checks_of_strategy()):
            if is_wrong:
                raise UsageError(f"plan: {problem}", advice=advice)
        return self

    def _checks(self) -> Iterator[tuple[bool, str, str]]:
        """Yield whether something is wrong, what it is, and advice. Later checks rely on earlier ones."""
        home, shares = self.parameter_device, [clone.share for clone in self.clones]
        total = " + ".join(map(str, shares))
        yield sum(shares) != self.batch, f"the clones' shares {total} do not add up to batch {self.batch}", ""
        for replica in self.replicas if self.strategy != "ddp" else ():
            names = [clone.device for clone in replica.clones if clone.device != "cpu"]
            for name in names:
                problem = f"two clones of one process on {name}: they would wait for each other"
                yield names.count(name) > 1, problem, ""
        problem = f"inputs_device {self.inputs_device}: batches are made on the cpu"
        yield self.inputs_device != "cpu", problem, ""
        problem = f"optimizer_device {self.optimizer_device}: must be the parameter_device ({home})"
        yield self.optimizer_device != home, problem, ""
        is_cuda = all(device.startswith("cuda") for device in self.devices)
        problem = f"precision tf32 is for cuda devices, not {self._devices()}"
        yield self.precision == "tf32" and not is_cuda, problem, ""

    def _checks_of_strategy(self) -> Iterator[tuple[bool, str, str]]:
        strategy, home, num = self.strategy, self.parameter_device, len(self.replicas)
        name = f"strategy {strategy}"
        yield strategy in {"single", "clones"} and num > 1, f"{name} is for one replica, not {num}", ""
        alone = [clone.device for clone in self.clones] == [home]
        yield strategy == "single" and not alone, f"{name} has one clone, on the parameter device", ""
        if strategy in {"ddp", "fsdp"}:
            if strategy == "fsdp":
                yield len(self.clones) > num, f"{name} has one clone in each replica", ""
            each = [{clone.device for clone in replica.clones} for replica in self.replicas]
            yield max(map(len, each)) > 1, f"{name} has the clones of a replica on one device", ""
            waits = self.batch_norm == "synced" and len(self.clones) > num
            problem = "batch_norm synced needs all clones at the same layer: one clone in each replica"
            advice = "use deploy.batch_norm=first or frozen, or as many deploy.replicas= as clones"
            yield waits, problem, advice
            is_half = strategy == "fsdp" and self.precision == "fp16"
            advice = "use deploy.precision=bf16 or fp32, or deploy.strategy=ddp"
            yield is_half, f"{name} does not compute in fp16", advice
            problem = f"{name} keeps parameters beside its clones, not on {home}"
            yield home != self.clones[0].device, problem, ""
            yield from self._checks_of_collectives()
        if strategy == "parameter_server":
            yield not self.servers, f"{name} has no servers", ""
            yield home != "cpu", f"parameter servers keep parameters on the cpu, not {home}", ""
            if self.batch_norm == "synced" and num > 1:
                problem = "batch_norm synced needs synchronous replicas, without staleness"
                advice = "use deploy.batch_norm=first or frozen, or leave deploy.staleness= out"
                yield self.staleness is not None, problem, advice
                yield from self._checks_of_collectives()
        elif self.servers or self.staleness is not None:
            yield True, f"servers and staleness are not for {name}", ""

    def _checks_of_collectives(self) -> Iterator[tuple[bool, str, str]]:
        """Yield the checks of several replicas that compute sums together."""
        kinds, several = {device.partition(":")[0] for device in self.devices}, len(self.replicas) > 1
        problem = f"strategy {self.strategy} needs devices of one kind, not {self._devices()}"
        advice = "use deploy.strategy=clones, or parameter_server with batch_norm first"
        yield several and len(kinds) > 1, problem, advice
        problem = f"replicas on {self.clones[0].device} cannot communicate"
        advice = "use deploy.strategy=parameter_server, or one replica"
        yield several and not kinds.isdisjoint({"mps", "xla"}), problem, advice
        in_each = several and (self.strategy == "fsdp" or self.batch_norm == "synced")
        for replica in range(len(self.replicas)) if in_each else ():
            problem = (
                f"replica {replica} has no sample in one of the {self.accumulation} micro-batches, "
                f"and needs one with strategy {self.strategy}, batch_norm {self.batch_norm}"
            )
            advice = "use a larger batch=, other deploy.shares=, or a lower deploy.accumulation="
            yield not all(map(len, self.replica_ranges(replica))), problem, advice

    @classmethod
    def on_one_device(cls, device: str, *, batch: int, **choices: Any) -> Self:
        """Return a plan for one clone that keeps the parameters itself."""
        replicas = (Replica(clones=(Clone(device=device, share=batch),)),)
        home = {"parameter_device": device, "optimizer_device": device}
        return cls(replicas=replicas, batch=batch, **home, **choices)

    @property
    def clones(self) -> tuple[Clone, ...]:
        """The clones of all replicas, in order."""
        return tuple(clone for replica in self.replicas for clone in replica.clones)

    @property
    def num_processes(self) -> int:
        return len(self.replicas) + self.servers

    def server_of(self, parameter: int) -> int:
        """Return the index of the server that holds the parameter with this index, in round-robin order."""
        return parameter % self.servers

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that compute, each listed once."""
        return tuple(dict.fromkeys(clone.device for clone in self.clones))

    def clone_name(self, index: int) -> str:
        """Return such as `clone_0`, or an empty string if there is only one clone."""
        if not 0 <= index < len(self.clones):
            raise IndexError(f"clone {index} of {len(self.clones)}")
        return f"clone_{index}" if len(self.clones) > 1 else ""

    def micro_batches(self, num_samples: int) -> list[int]:
        """Return the sizes of the micro-batches of `num_samples`, as equal as possible."""
        return micro_batch_sizes(num_samples, self.accumulation)

    def split(self, num_samples: int) -> list[list[int]]:
        """Return how many of `num_samples` consecutive samples each clone computes, for every micro-batch."""
        shares = tuple(clone.share for clone in self.clones)
        return list(map(list, distribute(shares, num_samples, self.accumulation)))

    def replica_ranges(self, replica: int) -> list[range]:
        """Return the positions within a step of a replica's samples: one range for each micro-batch."""
        clones = self.clones_of(replica)
        ranges, start = [], 0
        for counts in self.split(self.batch):
            begin = start + sum(counts[: clones.start])
            ranges.append(range(begin, begin + sum(counts[clones.start : clones.stop])))
            start += sum(counts)
        return ranges

    def clone_positions(self, clone: int) -> list[int]:
        """Return the positions within a step of a clone's samples, whichever replica computes it."""
        positions: list[int] = []
        start = 0
        for counts in self.split(self.batch):
            begin = start + sum(counts[:clone])
            positions += range(begin, begin + counts[clone])
            start += sum(counts)
        return positions

    def clone_split(self, clone: int, num_samples: int) -> list[int]:
        """Return how many of the samples of a clone that could be read are in each micro-batch."""
        sizes = []
        for counts in self.split(self.batch):
            sizes.append(min(counts[clone], num_samples))
            num_samples -= sizes[-1]
        return sizes

    def replica_split(self, replica: int, num_samples: int) -> list[list[int]]:
        """Return how many of the samples that a replica could read each clone computes, per micro-batch."""
        if len(self.replicas) == 1:
            return self.split(num_samples)
        own = self.clones_of(replica)
        micro_batches = [counts[own.start : own.stop] for counts in self.split(self.batch)]
        for counts in micro_batches:
            for index, count in enumerate(counts):
                counts[index] = min(count, num_samples)
                num_samples -= counts[index]
        return micro_batches

    def clones_of(self, replica: int) -> range:
        """Return the indices of a replica's clones."""
        first = sum(len(earlier.clones) for earlier in self.replicas[:replica])
        return range(first, first + len(self.replicas[replica].clones))

    def with_replicas(self, num: int) -> Self:
        """Return the plan with its clones dealt to another number of replicas; further ones have the device
        of the last.
        """
        devices = [replica.clones[0].device for replica in self.replicas]
        replicas = [
            [{"device": devices[min(rank, len(devices) - 1)], "share": self.clones[i].share} for i in own]
            for rank, own in enumerate(deal(len(self.clones), num))
        ]
        return type(self).of(self.tree() | {"replicas": [{"clones": clones} for clones in replicas]})

    def with_reason(self, reason: str) -> Plan:
        """Return a copy of the plan with another reason."""
        return self.model_copy(update={"reasons": (*self.reasons, reason)})

    def explain(self) -> list[str]:
        """Return the plan as lines for people."""
        servers = f", parameters on {counted(self.servers, 'server')}" if self.servers else ""
        parts = f" in {self.accumulation} micro-batches" if self.accumulation > 1 else ""
        cache = f", {format_bytes(self.cache_bytes)} for decoded images" if self.cache_bytes else ""
        lines = [
            f"{self.strategy} on {self._devices()}{servers}, batch {self.batch}{parts}, {self.precision}, "
            f"{self.memory_format}, {counted(self.threads, 'thread')}, "
            f"{counted(self.loader_workers, 'loader worker')}{cache}"
        ]
        if self.staleness is not None:
            ahead = f"at most {counted(self.staleness, 'step')} ahead of each other"
            lines.append(f"replicas update the parameters independently, {ahead}: results depend on timing")
        return [*lines, *self._sums(), *self._norms(), *self.reasons]

    def expectations(self) -> list[str]:
        """Return the predicted time and memory as lines; none without a prediction."""
        return [] if self.predicted is None else self.predicted.explain()

    def _sums(self) -> list[str]:
        """Return what another number of replicas would change."""
        if self.strategy != "ddp" or len(self.clones) == 1:
            return []
        dealt = f"{counted(len(self.clones), 'clone')} on {counted(len(self.replicas), 'replica')}"
        if not self.exact:
            return [f"{dealt}, summed in any order: other numbers of replicas round differently"]
        return [
            f"{dealt}, summed in a fixed order: 1 to {len(self.clones)} replicas learn the same, bit for bit"
        ]

    def _norms(self) -> list[str]:
        """Return what BatchNorm does differently than with one clone."""
        if self.batch_norm == "frozen":
            return ["BatchNorm keeps its initial statistics"]
        if len(self.clones) == 1:
            line = f"BatchNorm sees one of the {self.accumulation} micro-batches at a time"
            return [line] if self.accumulation > 1 else []
        if self.batch_norm == "synced":
            return ["BatchNorm uses the statistics of all clones together, as with one clone"]
        rule = "BatchNorm normalizes each clone separately and keeps the statistics of the first"
        return [f"{rule} (deploy.batch_norm=synced: of all clones)"]

    def _devices(self) -> str:
        """Return such as `cuda:0`, or `cpu (5) + cpu (3)` with the share of each clone."""
        if len(self.clones) == 1:
            return self.clones[0].device
        return " + ".join(f"{clone.device} ({clone.share})" for clone in self.clones)
