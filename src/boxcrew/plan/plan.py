"""Who does what where in a run, as data: written to `plan.json`, editable by hand, replayed with `plan=`."""

from __future__ import annotations

from functools import cache
from typing import Literal, Self

from pydantic import Field, model_validator

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes
from boxcrew.plan.prediction import Prediction

Strategy = Literal["single", "clones", "ddp", "fsdp", "parameter_server"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
"""Of convolutions and products; tf32 is what recent accelerators make of fp32 if they may round."""
MemoryFormat = Literal["contiguous", "channels_last"]
BatchNorm = Literal["first", "synced", "frozen"]
"""Whose statistics BatchNorms learn: of the first clone, each clone being normalised by its own (the rule of
the classic systems); of all clones together, as if there were one; or none, those they began with stay.
"""


class Clone(Config):
    """One copy of the task on one device."""

    group = "clones"

    device: str
    share: int = Field(ge=1)  # of the samples of a step


class Replica(Config):
    """One process with its clones."""

    group = "replicas"

    clones: tuple[Clone, ...] = Field(min_length=1)


class Plan(Config):
    task: str | None = None  # what it was made for, such as detection by ssdlite; None: for any
    strategy: Strategy = "single"
    replicas: tuple[Replica, ...] = Field(min_length=1)  # the first is chief
    servers: int = Field(default=0, ge=0)  # processes that keep the parameters, for strategy parameter_server
    staleness: int | None = Field(default=None, ge=0)  # steps one may be ahead of another; None: together
    parameter_device: str
    optimizer_device: str
    inputs_device: str = "cpu"
    batch: int = Field(ge=1)  # samples a step, over all clones
    accumulation: int = Field(default=1, ge=1)  # micro-batches a step: the same gradient in less memory
    recompute: bool = False  # activations in backward instead of keeping them: the same in less memory
    batch_norm: BatchNorm = "first"
    precision: Precision = "fp32"
    memory_format: MemoryFormat = "contiguous"
    threads: int = Field(ge=1)  # of a replica's process, shared by its clones on the CPU
    loader_workers: int = Field(ge=0)  # of a replica
    pinned: bool = False  # each replica to cores of its own, near to each other
    memory_fraction: float | None = Field(default=None, gt=0, le=1)  # of each device's memory, at most
    cache_bytes: int = Field(default=0, ge=0)  # of main memory for decoded images
    goal: str = "fastest"
    predicted: Prediction | None = None  # None: of a plan that was written by hand
    reasons: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()  # what else was looked at, and why not

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        shares = [clone.share for clone in self.clones]
        if sum(shares) != self.batch:
            told = " + ".join(map(str, shares))
            raise UsageError(f"plan: the clones' shares {told} are not the batch of {self.batch}")
        return self

    @model_validator(mode="after")
    def _can_be_followed(self) -> Self:
        """What no strategy would do is not to be believed of a plan that was written by hand."""
        for replica in self.replicas:
            names = [clone.device for clone in replica.clones if clone.device != "cpu"]
            for name in names:
                if names.count(name) > 1:
                    raise UsageError(
                        f"plan: two clones of one process on {name}: they would wait for each other"
                    )
        if self.inputs_device != "cpu":
            raise UsageError(f"plan: inputs_device {self.inputs_device}: batches are made on the cpu")
        if self.optimizer_device != self.parameter_device:
            raise UsageError(
                f"plan: optimizer_device {self.optimizer_device}: updates are made where the parameters are "
                f"({self.parameter_device})"
            )
        if self.precision == "tf32" and any(not clone.device.startswith("cuda") for clone in self.clones):
            raise UsageError(f"plan: precision tf32 is for cuda devices, not {self._devices()}")
        if self.strategy in {"single", "clones"} and len(self.replicas) > 1:
            raise UsageError(f"plan: strategy {self.strategy} is for one replica, not {len(self.replicas)}")
        if self.strategy == "single" and [c.device for c in self.clones] != [self.parameter_device]:
            raise UsageError("plan: strategy single has one clone, on the parameter device")
        if self.strategy in {"ddp", "fsdp"}:
            self._require_one_clone_each()
        self._require_servers()
        return self

    def _require_servers(self) -> None:
        if self.strategy != "parameter_server":
            if self.servers or self.staleness is not None:
                raise UsageError(f"plan: servers and staleness are not for strategy {self.strategy}")
            return
        if not self.servers:
            raise UsageError("plan: strategy parameter_server has no servers")
        if self.parameter_device != "cpu":
            raise UsageError(
                f"plan: parameter servers keep parameters on the cpu, not {self.parameter_device}"
            )
        if self.batch_norm == "synced" and len(self.replicas) > 1:
            if self.staleness is not None:
                raise UsageError(
                    "plan: batch_norm synced makes replicas meet, and with staleness they do not",
                    advice="deploy.batch_norm=first or frozen, or no deploy.staleness=",
                )
            self._require_common_kind()
            self._require_pieces()

    def _require_one_clone_each(self) -> None:
        if any(len(replica.clones) > 1 for replica in self.replicas):
            raise UsageError(f"plan: strategy {self.strategy} has one clone in each replica")
        if self.strategy == "fsdp" and self.precision == "fp16":
            raise UsageError(
                "plan: strategy fsdp does not compute in fp16",
                advice="deploy.precision=bf16 or fp32, or deploy.strategy=ddp",
            )
        if self.parameter_device != self.clones[0].device:
            raise UsageError(
                f"plan: strategy {self.strategy} keeps parameters beside its clones, not on "
                f"{self.parameter_device}"
            )
        self._require_common_kind()
        if len(self.replicas) > 1 and (self.strategy == "fsdp" or self.batch_norm == "synced"):
            self._require_pieces()

    def _require_common_kind(self) -> None:
        """Of devices whose replicas send each other what they compute."""
        kinds = {name.partition(":")[0] for name in self.devices}
        if len(self.replicas) > 1 and len(kinds) > 1:
            raise UsageError(
                f"plan: strategy {self.strategy} needs devices of one kind, not {self._devices()}",
                advice="deploy.strategy=clones, or parameter_server with batch_norm first, has several",
            )
        if len(self.replicas) > 1 and kinds & {"mps", "xla"}:
            raise UsageError(
                f"plan: replicas on {self.clones[0].device} cannot send each other anything",
                advice="deploy.strategy=parameter_server, or one replica",
            )

    def _require_pieces(self) -> None:
        for replica in range(len(self.replicas)):
            if not all(map(len, self.pieces(replica))):
                raise UsageError(
                    f"plan: replica {replica} would have no sample for some of the {self.accumulation} parts "
                    f"of a step, and needs one with strategy {self.strategy}, batch_norm {self.batch_norm}",
                    advice="a larger batch=, other deploy.shares=, or less deploy.accumulation=",
                )

    @property
    def clones(self) -> tuple[Clone, ...]:
        """Of all replicas, in order."""
        return tuple(clone for replica in self.replicas for clone in replica.clones)

    @property
    def num_processes(self) -> int:
        return len(self.replicas) + self.servers

    def keeper(self, parameter: int) -> int:
        """Which server keeps a parameter of that number: they take turns."""
        return parameter % self.servers

    @property
    def devices(self) -> tuple[str, ...]:
        """That compute, each once."""
        return tuple(dict.fromkeys(clone.device for clone in self.clones))

    def clone_name(self, index: int) -> str:
        """Empty where there is only one, for then nothing has to be told apart."""
        if not 0 <= index < len(self.clones):
            raise IndexError(f"clone {index} of {len(self.clones)}")
        return f"clone_{index}" if len(self.clones) > 1 else ""

    def micro_batches(self, num_samples: int) -> list[int]:
        """Sizes of the parts that `num_samples` are computed in: as equal as can be."""
        return equal_parts(num_samples, min(self.accumulation, num_samples))

    def split(self, num_samples: int) -> list[list[int]]:
        """How many of `num_samples` consecutive samples each clone computes, part by part."""
        shares = tuple(clone.share for clone in self.clones)
        return [list(counts) for counts in deal_out(shares, tuple(self.micro_batches(num_samples)))]

    def pieces(self, replica: int) -> list[range]:
        """The positions within a step of the samples that a replica computes: one range for each part."""
        own = self._clones_of(replica)
        found, start = [], 0
        for counts in self.split(self.batch):
            begin = start + sum(counts[: own.start])
            found.append(range(begin, begin + sum(counts[own])))
            start += sum(counts)
        return found

    def dealt(self, replica: int, num_samples: int) -> list[list[int]]:
        """How many of the samples that a replica has of a step each of its clones computes, part by part.
        `num_samples` is less than its share where some could not be read.
        """
        if len(self.replicas) == 1:
            return self.split(num_samples)
        found = []
        for counts in self.split(self.batch):
            taken = []
            for count in counts[self._clones_of(replica)]:
                taken.append(min(count, num_samples))
                num_samples -= taken[-1]
            found.append(taken)
        return found

    def _clones_of(self, replica: int) -> slice:
        first = sum(len(other.clones) for other in self.replicas[:replica])
        return slice(first, first + len(self.replicas[replica].clones))

    def because(self, reason: str) -> Plan:
        """The same with one reason more."""
        return self.model_copy(update={"reasons": (*self.reasons, reason)})

    def explain(self) -> list[str]:
        """Lines for people."""
        batch = f"batch {self.batch}"
        if self.accumulation > 1:
            batch += f" in {self.accumulation} parts"
        cache = f", {format_bytes(self.cache_bytes)} for decoded images" if self.cache_bytes else ""
        kept = f", parameters on {counted(self.servers, 'server')}" if self.servers else ""
        return [
            f"{self.strategy} on {self._devices()}{kept}, {batch}, {self.precision}, {self.memory_format}, "
            f"{counted(self.threads, 'thread')}, {counted(self.loader_workers, 'loader worker')}{cache}",
            *self._pace(),
            *self._norms(),
            *self.reasons,
        ]

    def _pace(self) -> list[str]:
        if self.staleness is None:
            return []
        ahead = counted(self.staleness, "step")
        return [
            f"every replica updates the parameters by itself, and may be {ahead} ahead of another: "
            "what is learnt depends on who comes when"
        ]

    def _norms(self) -> list[str]:
        """What is not as with one clone has to be said."""
        if self.batch_norm == "frozen":
            return ["BatchNorms keep the statistics they begin with"]
        if len(self.clones) == 1:
            parts = f"BatchNorms see one of the {self.accumulation} parts of a step at a time"
            return [parts] if self.accumulation > 1 else []
        if self.batch_norm == "synced":
            return ["BatchNorms learn the statistics of all clones together, as one clone would"]
        return [
            "BatchNorms normalise each clone by itself and learn the statistics of the first "
            "(deploy.batch_norm=synced: of all together)"
        ]

    def _devices(self) -> str:
        """Such as `cuda:0`, or `cpu (5) + cpu (3)` with the samples that each computes."""
        if len(self.clones) == 1:
            return self.clones[0].device
        return " + ".join(f"{clone.device} ({clone.share})" for clone in self.clones)


def equal_parts(num_samples: int, num_parts: int) -> list[int]:
    """As equal as can be, larger ones first."""
    small, extra = divmod(num_samples, num_parts)
    return [small + 1] * extra + [small] * (num_parts - extra)


@cache
def deal_out(shares: tuple[int, ...], parts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Parts of so many samples, each dealt out to clones. The first clone gets one of every part, also where
    its share is less than that, for its statistics are kept; then whose share is furthest behind gets the
    next. Over all parts of a full batch that gives each clone just its share.
    """
    rest = (max(0, shares[0] - len(parts)), *shares[1:])
    given, dealt = [0] * len(shares), 0
    found = []
    for size in parts:
        before = list(given)
        dealt += size - 1
        for _ in range(size - 1):
            behind = [share * dealt - had * sum(rest) for share, had in zip(rest, given, strict=True)]
            given[behind.index(max(behind))] += 1
        first, *others = (after - had for after, had in zip(given, before, strict=True))
        found.append((1 + first, *others))
    return tuple(found)
