"""The request for a plan: the settings that the user fixed, and the goal."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    BeforeValidator,
    ByteSize,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)

from boxcrew.core.config import Config, commas
from boxcrew.core.errors import UsageError
from boxcrew.core.units import format_bytes, format_duration, parse_duration
from boxcrew.plan.plan import BatchNorm, MemoryFormat, Precision, Strategy

Count = Annotated[int, Field(ge=1)]


class ReplicaRange(NamedTuple):
    """The least and the most replicas of a run, written `1:4`."""

    least: int
    most: int

    @classmethod
    def parse(cls, value: object) -> ReplicaRange:
        """Parse `1:4`; `ValueError` for anything else."""
        match = re.fullmatch(r"(\d{1,5}):(\d{1,5})", str(value))
        if isinstance(value, cls):
            return value
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError("input should be a range such as 1:4")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.least}:{self.most}"

    def nearest(self, num: int) -> int:
        """Return the number in the range that is nearest to `num`."""
        return min(max(num, self.least), self.most)


ReplicaRangeSetting = Annotated[
    ReplicaRange, PlainValidator(ReplicaRange.parse), PlainSerializer(str, return_type=str)
]


class DeployConfig(Config, group="deploy"):
    """Settings of the deployment; the planner chooses all that is `auto`."""

    strategy: Strategy | Literal["auto"] = "auto"
    """How parameters and gradients are shared: single, clones, ddp, fsdp or parameter_server."""
    replicas: Count | Literal["auto"] | ReplicaRangeSetting = "auto"
    """Processes that compute; auto starts one for each accelerator, a range such as 1:4 so many of these."""
    servers: Count | Literal["auto"] = "auto"
    """Processes that keep parameters, for parameter_server."""
    staleness: Annotated[int, Field(ge=0)] | None = None
    """Steps that a replica may be ahead of another; none updates them together."""
    clones: Count | Literal["auto"] = "auto"
    """Copies of the model in one process."""
    logical_clones: Count | Literal["auto"] = "auto"
    """Shares of a step, however many replicas compute them (ddp); auto is one for each replica."""
    exact: bool | Literal["auto"] = "auto"
    """Add up in the order of clones: any number of replicas learns the same bits; auto does with ddp."""
    restarts: int = Field(default=2, ge=0)
    """Lost processes within 10 minutes that a run on one launcher survives; one more ends it."""
    listen: str = "127.0.0.1:0"
    """Address at which boxcrew join finds the run; port 0 is any. It must be one that others reach."""
    clone_on_cpu: bool = False
    """Put all clones on the CPU, even if there are accelerators."""
    shares: Annotated[tuple[Count, ...], commas] | None = None
    """Samples of a step for each clone, such as 5,3; none divides them by speed."""
    batch_norm: BatchNorm = "first"
    """Statistics that BatchNorm learns: of the first clone, of all (synced), or none (frozen)."""
    optimizer_device: Literal["auto", "cpu"] = "auto"
    """Where parameters and optimizer live; cpu keeps them in main memory."""
    precision: Precision | Literal["auto"] = "auto"
    """Number format of the computation: fp32, tf32, bf16 or fp16."""
    memory_format: MemoryFormat | Literal["auto"] = "auto"
    """Memory layout of images: contiguous or channels_last."""
    threads: Count | Literal["auto"] = "auto"
    """CPU threads of each process."""
    accumulation: Count | Literal["auto"] = "auto"
    """Micro-batches of a step; auto takes as few as fit into memory."""
    recompute: bool | Literal["auto"] = "auto"
    """Compute activations again in backward to save memory; auto only if nothing else fits."""
    memory_fraction: float | None = Field(default=None, gt=0, le=1)
    """Largest fraction of each device's memory to use."""


class Goal(Config, group="goal"):
    """The goal that a plan is optimized for."""

    kind: Literal["fastest", "smallest", "deadline", "budget"] = "fastest"
    seconds: float | None = Field(default=None, gt=0)  # of the whole training, for a deadline
    num_bytes: int | None = Field(default=None, gt=0)  # of each device, for a budget

    @classmethod
    def parse(cls, text: object) -> Self:
        """Parse `fastest`, `smallest`, `deadline:2h` or `budget:8GB`."""
        if isinstance(text, cls):
            return text
        kind, _, limit = str(text).partition(":")
        settings: dict[str, object] = {"kind": kind}
        if kind == "deadline" and limit:
            try:
                settings["seconds"] = parse_duration(limit)
            except UsageError as error:
                raise UsageError(f"goal=deadline:{error.message}", advice=error.advice) from None
        elif kind == "budget" and limit:
            try:
                settings["num_bytes"] = num_bytes = int(TypeAdapter(ByteSize).validate_python(limit))
            except ValidationError:
                raise UsageError(f"goal={text}: not a size", advice="write it like 8GB or 512MiB") from None
            if num_bytes <= 0:
                raise UsageError(f"goal={text}: a budget must be above zero")
        elif text not in {"fastest", "smallest"}:
            advice = "use fastest, smallest, deadline:2h or budget:8GB"
            raise UsageError(f"goal={text}: no such goal", advice=advice)
        return cls.of(settings)

    def exactly(self) -> str:
        """Return the text from which `parse` makes an equal goal."""
        if self.seconds is not None:
            return f"deadline:{Decimal(repr(self.seconds)):f}"
        return f"budget:{self.num_bytes}B" if self.num_bytes is not None else self.kind

    def __str__(self) -> str:
        if self.seconds is not None:
            return f"deadline:{format_duration(self.seconds)}"
        return f"budget:{format_bytes(self.num_bytes)}" if self.num_bytes is not None else self.kind


GoalSetting = Annotated[Goal, BeforeValidator(Goal.parse), PlainSerializer(Goal.exactly)]


class PlanRequest(Config):
    """Everything that a plan is requested for."""

    deploy: DeployConfig = DeployConfig()
    goal: Goal = Goal()
    device: str = "auto"
    batch: int = Field(ge=1)  # samples per step, over all clones; results depend on it, so it is fixed
    workers: int | Literal["auto"] = "auto"
    cache: int | Literal["auto"] = "auto"  # bytes for decoded images
    num_samples: int = Field(ge=1)  # of an epoch
    steps: float = Field(gt=0)  # of the run
    seconds: float | None = None  # of the run, if the clock ends it
    prefetch: int = 4  # batches that each worker makes ahead
    eval_batch: int = 0  # samples per batch of evaluations
    num_replicas: Count | None = None  # on all hosts of the run; None: there is one host
