"""A plan says who does what where in a run. It is data: written to `plan.json`, replayed with `plan=`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes
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
        for problem, advice in self._problems():
            raise UsageError(f"plan: {problem}", advice=advice)
        return self

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Yield problems with advice; later ones may assume that there are no earlier ones."""
        shares = [clone.share for clone in self.clones]
        if sum(shares) != self.batch:
            total = " + ".join(map(str, shares))
            yield f"the clones' shares {total} do not add up to batch {self.batch}", ""
        for replica in self.replicas:
            names = [clone.device for clone in replica.clones if clone.device != "cpu"]
            for name in names:
                if names.count(name) > 1:
                    yield f"two clones of one process on {name}: they would wait for each other", ""
        home = self.parameter_device
        if self.inputs_device != "cpu":
            yield f"inputs_device {self.inputs_device}: batches are made on the cpu", ""
        if self.optimizer_device != home:
            yield f"optimizer_device {self.optimizer_device}: must be the parameter_device ({home})", ""
        if self.precision == "tf32" and any(not clone.device.startswith("cuda") for clone in self.clones):
            yield f"precision tf32 is for cuda devices, not {self._devices()}", ""
        yield from self._problems_of_strategy()

    def _problems_of_strategy(self) -> Iterator[tuple[str, str]]:
        if self.strategy in {"single", "clones"} and len(self.replicas) > 1:
            yield f"strategy {self.strategy} is for one replica, not {len(self.replicas)}", ""
        if self.strategy == "single" and [c.device for c in self.clones] != [self.parameter_device]:
            yield "strategy single has one clone, on the parameter device", ""
        if self.strategy in {"ddp", "fsdp"}:
            yield from self._problems_of_one_clone_each()
        if self.strategy == "parameter_server":
            yield from self._problems_with_servers()
        elif self.servers or self.staleness is not None:
            yield f"servers and staleness are not for strategy {self.strategy}", ""

    def _problems_of_one_clone_each(self) -> Iterator[tuple[str, str]]:
        if any(len(replica.clones) > 1 for replica in self.replicas):
            yield f"strategy {self.strategy} has one clone in each replica", ""
        if self.strategy == "fsdp" and self.precision == "fp16":
            advice = "use deploy.precision=bf16 or fp32, or deploy.strategy=ddp"
            yield "strategy fsdp does not compute in fp16", advice
        home = self.parameter_device
        if home != self.clones[0].device:
            yield f"strategy {self.strategy} keeps parameters beside its clones, not on {home}", ""
        yield from self._problems_of_kinds()
        if self.strategy == "fsdp" or self.batch_norm == "synced":
            yield from self._missing_samples()

    def _problems_with_servers(self) -> Iterator[tuple[str, str]]:
        if not self.servers:
            yield "strategy parameter_server has no servers", ""
        if self.parameter_device != "cpu":
            yield f"parameter servers keep parameters on the cpu, not {self.parameter_device}", ""
        if self.batch_norm == "synced" and len(self.replicas) > 1:
            if self.staleness is not None:
                advice = "use deploy.batch_norm=first or frozen, or leave deploy.staleness= out"
                yield "batch_norm synced needs synchronous replicas, without staleness", advice
            yield from self._problems_of_kinds()
            yield from self._missing_samples()

    def _problems_of_kinds(self) -> Iterator[tuple[str, str]]:
        """Yield why several replicas cannot communicate."""
        kinds = {name.partition(":")[0] for name in self.devices}
        if len(self.replicas) > 1 and len(kinds) > 1:
            advice = "use deploy.strategy=clones, or parameter_server with batch_norm first"
            yield f"strategy {self.strategy} needs devices of one kind, not {self._devices()}", advice
        if len(self.replicas) > 1 and kinds & {"mps", "xla"}:
            advice = "use deploy.strategy=parameter_server, or one replica"
            yield f"replicas on {self.clones[0].device} cannot communicate", advice

    def _missing_samples(self) -> Iterator[tuple[str, str]]:
        """Yield the replicas among several that would not take part in a micro-batch."""
        for replica in range(len(self.replicas)) if len(self.replicas) > 1 else ():
            if not all(map(len, self.replica_ranges(replica))):
                yield (
                    f"replica {replica} has no sample in one of the {self.accumulation} micro-batches, "
                    f"and needs one with strategy {self.strategy}, batch_norm {self.batch_norm}",
                    "use a larger batch=, other deploy.shares=, or a lower deploy.accumulation=",
                )

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
        return equal_sizes(num_samples, min(self.accumulation, num_samples))

    def split(self, num_samples: int) -> list[list[int]]:
        """Return how many of `num_samples` consecutive samples each clone computes, for every micro-batch."""
        shares = tuple(clone.share for clone in self.clones)
        return [list(counts) for counts in distribute(shares, tuple(self.micro_batches(num_samples)))]

    def replica_ranges(self, replica: int) -> list[range]:
        """Return the positions within a step of a replica's samples: one range for each micro-batch."""
        clones = self._clones_of(replica)
        ranges, start = [], 0
        for counts in self.split(self.batch):
            begin = start + sum(counts[: clones.start])
            ranges.append(range(begin, begin + sum(counts[clones])))
            start += sum(counts)
        return ranges

    def replica_split(self, replica: int, num_samples: int) -> list[list[int]]:
        """Return how many of a replica's samples each of its clones computes, for every micro-batch.

        `num_samples` is less than the replica's share if some could not be read.
        """
        if len(self.replicas) == 1:
            return self.split(num_samples)
        micro_batches = []
        for counts in self.split(self.batch):
            sizes = []
            for count in counts[self._clones_of(replica)]:
                sizes.append(min(count, num_samples))
                num_samples -= sizes[-1]
            micro_batches.append(sizes)
        return micro_batches

    def _clones_of(self, replica: int) -> slice:
        first = sum(len(earlier.clones) for earlier in self.replicas[:replica])
        return slice(first, first + len(self.replicas[replica].clones))

    def with_reason(self, reason: str) -> Plan:
        """Return a copy of the plan with another reason."""
        return self.model_copy(update={"reasons": (*self.reasons, reason)})

    def explain(self) -> list[str]:
        """Return the plan as lines for people."""
        batch = f"batch {self.batch}"
        if self.accumulation > 1:
            batch += f" in {self.accumulation} micro-batches"
        cache = f", {format_bytes(self.cache_bytes)} for decoded images" if self.cache_bytes else ""
        servers = f", parameters on {counted(self.servers, 'server')}" if self.servers else ""
        lines = [
            f"{self.strategy} on {self._devices()}{servers}, {batch}, {self.precision}, "
            f"{self.memory_format}, {counted(self.threads, 'thread')}, "
            f"{counted(self.loader_workers, 'loader worker')}{cache}"
        ]
        if self.staleness is not None:
            ahead = f"at most {counted(self.staleness, 'step')} ahead of each other"
            lines.append(f"replicas update the parameters independently, {ahead}: results depend on timing")
        return [*lines, *self._norms(), *self.reasons]

    def _norms(self) -> list[str]:
        """Return what BatchNorm does differently than with one clone."""
        if self.batch_norm == "frozen":
            return ["BatchNorm keeps its initial statistics"]
        if len(self.clones) == 1:
            line = f"BatchNorm sees one of the {self.accumulation} micro-batches at a time"
            return [line] if self.accumulation > 1 else []
        if self.batch_norm == "synced":
            return ["BatchNorm uses the statistics of all clones together, as with one clone"]
        return [
            "BatchNorm normalizes each clone separately and keeps the statistics of the first "
            "(deploy.batch_norm=synced: of all clones)"
        ]

    def _devices(self) -> str:
        """Return such as `cuda:0`, or `cpu (5) + cpu (3)` with the share of each clone."""
        if len(self.clones) == 1:
            return self.clones[0].device
        return " + ".join(f"{clone.device} ({clone.share})" for clone in self.clones)


def equal_sizes(num_samples: int, num: int) -> list[int]:
    """Divide samples into `num` sizes, as equal as possible, the larger ones first."""
    small, extra = divmod(num_samples, num)
    return [small + 1] * extra + [small] * (num - extra)


@cache
def distribute(shares: tuple[int, ...], micro_batches: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return how many samples of each micro-batch every clone gets. In a full batch each gets its share.

    The first clone gets one sample of every micro-batch, even if its share is smaller, because its BatchNorm
    statistics are kept. Each next sample goes to the clone that is furthest behind its share.
    """
    rest = (max(0, shares[0] - len(micro_batches)), *shares[1:])
    given, total = [0] * len(shares), 0
    counts = []
    for size in micro_batches:
        before = list(given)
        total += size - 1
        for _ in range(size - 1):
            behind = [share * total - had * sum(rest) for share, had in zip(rest, given, strict=True)]
            given[behind.index(max(behind))] += 1
        first, *others = (after - had for after, had in zip(given, before, strict=True))
        counts.append((1 + first, *others))
    return tuple(counts)
