"""Choosing a plan for a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from boxcrew.core.config import Config, commas
from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import BatchNorm, Clone, MemoryFormat, Plan, Precision, Replica, Strategy

CACHE_SHARE = 8  # one part in so many of the memory may hold decoded images

Count = Annotated[int, Field(ge=1)]


class DeployConfig(Config):
    """What the user fixes; all that is `auto` the planner chooses."""

    group = "deploy"

    strategy: Strategy | Literal["auto"] = "auto"
    replicas: Count | Literal["auto"] = "auto"  # processes that compute; auto: as many as were started
    servers: Count | Literal["auto"] = "auto"  # processes that keep parameters, if the strategy has any
    staleness: Annotated[int, Field(ge=0)] | None = None  # steps a replica may be ahead of another
    clones: Count | Literal["auto"] = "auto"  # copies of the model in a process
    clone_on_cpu: bool = False  # all clones on the CPU, also where there are accelerators
    shares: Annotated[tuple[Count, ...], commas] | None = (
        None  # samples of a step for each clone; None: equal
    )
    batch_norm: BatchNorm = "first"
    optimizer_device: Literal["auto", "cpu"] = "auto"  # cpu: parameters and optimizer stay in main memory
    precision: Precision | Literal["auto"] = "auto"
    memory_format: MemoryFormat | Literal["auto"] = "auto"
    threads: Count | Literal["auto"] = "auto"
    accumulation: int = Field(default=1, ge=1)
    memory_fraction: float | None = Field(default=None, gt=0, le=1)  # of each device's memory, at most


@dataclass(frozen=True, kw_only=True)
class InputWishes:
    """What the user fixes about the making of batches."""

    workers: int | Literal["auto"] = "auto"
    cache: int | Literal["auto"] = "auto"  # bytes


def make_plan(
    machine: Machine,
    wishes: DeployConfig,
    *,
    device: str,
    batch: int,
    inputs: InputWishes,
    cpu_format: MemoryFormat,
) -> Plan:
    """A plan for this machine. `cpu_format` is the faster memory format of the model at hand on CPUs."""
    num = 1 if wishes.replicas == "auto" else wishes.replicas
    chosen, reason = _devices(machine, wishes, device, num)
    strategy = _strategy(wishes, chosen, num)
    on_cpu = all(one.kind == "cpu" for one in chosen)
    cores = max(1, int(machine.cores) // num)
    # A CPU that trains has no core to spare: one worker only hides the reading behind the computing.
    workers = min(cores - 1, 1 if on_cpu else 8) if inputs.workers == "auto" else inputs.workers
    if wishes.accumulation > batch:
        raise UsageError(
            f"deploy.accumulation={wishes.accumulation}: more parts than batch={batch} has samples"
        )
    shares = shares_of(wishes, batch, len(chosen))
    clones = [Clone(device=one.name, share=share) for one, share in zip(chosen, shares, strict=True)]
    keeper = "cpu" if strategy in {"clones", "parameter_server"} else chosen[0].name
    return Plan(
        strategy=strategy,
        replicas=_replicas(clones, num),
        servers=num_servers(wishes) if strategy == "parameter_server" else 0,
        staleness=wishes.staleness,
        parameter_device=keeper,
        optimizer_device=keeper,
        batch=batch,
        accumulation=wishes.accumulation,
        batch_norm=wishes.batch_norm,
        precision=_precision(chosen) if wishes.precision == "auto" else wishes.precision,
        memory_format=_format(chosen, cpu_format) if wishes.memory_format == "auto" else wishes.memory_format,
        threads=cores if wishes.threads == "auto" else wishes.threads,
        loader_workers=workers,
        memory_fraction=wishes.memory_fraction,
        cache_bytes=_cache(machine, inputs, workers) // num,
        reasons=(reason,),
    )


def num_servers(wishes: DeployConfig) -> int:
    """That are asked for."""
    if wishes.servers != "auto":
        return wishes.servers
    return 1 if wishes.strategy == "parameter_server" else 0


def _replicas(clones: Sequence[Clone], num: int) -> tuple[Replica, ...]:
    """As many clones in each."""
    each = len(clones) // num
    return tuple(Replica(clones=tuple(clones[i * each : (i + 1) * each])) for i in range(num))


def _strategy(wishes: DeployConfig, chosen: Sequence[Device], num: int) -> Strategy:
    """`ddp` for several processes; `clones` where one has several, or where the parameters do not live where
    they are computed with; `parameter_server` only if asked for.
    """
    offloaded = wishes.optimizer_device == "cpu" and chosen[0].kind != "cpu"
    if wishes.strategy == "parameter_server" or (wishes.strategy == "auto" and wishes.servers != "auto"):
        return "parameter_server"
    for name, value in (("servers", wishes.servers), ("staleness", wishes.staleness)):
        if value not in {"auto", None}:
            raise UsageError(
                f"deploy.{name}={value}: not with deploy.strategy={wishes.strategy}",
                advice="deploy.strategy=parameter_server has servers",
            )
    if num > 1 and offloaded:
        raise UsageError(f"deploy.optimizer_device=cpu: not with deploy.replicas={num}")
    if num > 1:
        fitting: list[Strategy] = ["ddp", "fsdp"]
        what = f"deploy.replicas={num}"
    elif offloaded or len(chosen) > 1:
        fitting = ["clones"]
        what = "deploy.optimizer_device=cpu" if offloaded else f"{len(chosen)} clones"
    else:
        fitting = ["single", "clones", "ddp", "fsdp"]
        what = "one clone"
    if wishes.strategy not in {"auto", *fitting}:
        raise UsageError(
            f"deploy.strategy={wishes.strategy}: not with {what}",
            advice=f"deploy.strategy={fitting[0]} does it",
        )
    return fitting[0] if wishes.strategy == "auto" else wishes.strategy


def _devices(
    machine: Machine, wishes: DeployConfig, wanted: str, num_replicas: int
) -> tuple[list[Device], str]:
    """One for each clone, and why these."""
    if wishes.clone_on_cpu and wanted not in {"auto", "cpu"}:
        raise UsageError(f"deploy.clone_on_cpu=true: but device={wanted}", advice="leave one of them out")
    if num_replicas > 1:
        return _of_replicas(machine, wishes, wanted, num_replicas)
    if "," in wanted:
        names = wanted.split(",")
        if wishes.clones not in {"auto", len(names)}:
            raise UsageError(f"deploy.clones={wishes.clones}: device= names {len(names)} devices")
        return _listed(machine, names)
    num = 1 if wishes.clones == "auto" else wishes.clones
    if wishes.clone_on_cpu:
        return [machine.devices[0]] * num, "deploy.clone_on_cpu: all clones are on the CPU"
    if num == 1:
        device, reason = _device(machine, wanted)
        return [device], reason
    return _accelerators(machine, wanted, num, f"deploy.clones={num}")


def _of_replicas(machine: Machine, wishes: DeployConfig, wanted: str, num: int) -> tuple[list[Device], str]:
    clones = 1 if wishes.clones == "auto" else wishes.clones
    if clones > 1 and not num_servers(wishes):
        raise UsageError(
            f"deploy.clones={clones}: with several replicas each has one clone",
            advice="deploy.strategy=parameter_server has several",
        )
    what = f"deploy.replicas={num}" + (f" deploy.clones={clones}" if clones > 1 else "")
    if "," in wanted:
        devices, reason = _listed(machine, wanted.split(","))
        if len(devices) != num * clones:
            raise UsageError(f"{what}: device= names {len(devices)} devices")
        return devices, reason
    if wishes.clone_on_cpu or wanted == "cpu" or not machine.accelerators:
        _device(machine, wanted)
        return [machine.devices[0]] * num * clones, f"{what}: processes that share the CPU"
    return _accelerators(machine, wanted, num * clones, what)


def _accelerators(machine: Machine, wanted: str, num: int, what: str) -> tuple[list[Device], str]:
    pool = [one for one in machine.accelerators if wanted in {"auto", "gpu", one.kind, one.name}]
    if num > len(pool):
        raise UsageError(
            f"{what}: more than there are accelerators for device={wanted} ({len(pool)})",
            advice="fewer of them, or all on the CPU with deploy.clone_on_cpu=true",
        )
    return pool[:num], f"{what}: one on each accelerator"


def _listed(machine: Machine, names: Sequence[str]) -> tuple[list[Device], str]:
    devices = [_device(machine, name.strip())[0] for name in names]
    return devices, f"device={','.join(names)} was asked for"


def _device(machine: Machine, wanted: str) -> tuple[Device, str]:
    names = [device.name for device in machine.devices]
    if wanted == "auto":
        if machine.accelerators:
            return machine.accelerators[0], "the first accelerator computes"
        return machine.devices[0], "no accelerator here: the CPU computes"
    for device in machine.devices:
        if wanted in {device.name, device.kind} or (wanted == "gpu" and device.kind != "cpu"):
            return device, f"device={wanted} was asked for"
    raise UsageError(f"device={wanted}: not on this machine", advice=f"it has: {', '.join(names)}")


def shares_of(wishes: DeployConfig, batch: int, num_clones: int) -> list[int]:
    if wishes.shares is None:
        if num_clones > batch:
            raise UsageError(f"{num_clones} clones: more than batch={batch} has samples")
        share, extra = divmod(batch, num_clones)
        return [share + 1] * extra + [share] * (num_clones - extra)
    told = ",".join(map(str, wishes.shares))
    if len(wishes.shares) != num_clones:
        raise UsageError(f"deploy.shares={told}: {len(wishes.shares)} shares for {num_clones} clones")
    if sum(wishes.shares) != batch:
        raise UsageError(
            f"deploy.shares={told}: add up to {sum(wishes.shares)}, but batch={batch}",
            advice="a share is how many of the batch's samples a clone computes",
        )
    return list(wishes.shares)


def _cache(machine: Machine, inputs: InputWishes, workers: int) -> int:
    """Processes that are not forked do not share memory."""
    if workers and not machine.platform.startswith("Linux"):
        return 0
    return machine.memory_bytes // CACHE_SHARE if inputs.cache == "auto" else inputs.cache


def _precision(devices: Sequence[Device]) -> Precision:
    """What all of them compute fast: clones of one model must not differ in more than their share."""
    # bf16 needs no loss scaling, but only recent CUDA devices compute it fast; old ones have fp16.
    if any(device.kind != "cuda" for device in devices):
        return "fp32"
    return "bf16" if all(device.bf16 for device in devices) else "fp16"


def _format(devices: Sequence[Device], cpu_format: MemoryFormat) -> MemoryFormat:
    return cpu_format if all(device.kind == "cpu" for device in devices) else "channels_last"
