"""Layouts: which devices compute what share of a step, in how many processes, and where parameters live."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.candidate import Candidate
from boxcrew.plan.plan import Strategy
from boxcrew.plan.request import DeployConfig, PlanRequest

REPLICA_MEMORY = 2 << 30  # bytes of main memory that a replica on the CPU should have
COMMUNICATING = ("cuda", "xpu")  # kinds of accelerators whose replicas can send each other gradients


def layouts_of(machine: Machine, request: PlanRequest) -> list[Candidate]:
    """Return candidates whose choices beyond the layout are open, the usual one first.

    The others are for models that need more memory.
    """
    deploy = request.deploy
    several = _several(machine, request) if deploy.replicas == "auto" else None
    if several is not None:
        devices, reason = several
        num = len(devices)
    else:
        num = 1 if deploy.replicas == "auto" else deploy.replicas
        devices, reason = _devices(machine, deploy, request.device, num)
    return [
        Candidate(
            strategy=strategy,
            devices=tuple(devices),
            shares=(1,) * len(devices),
            replicas=num,
            servers=num_servers(deploy) if strategy == "parameter_server" else 0,
            parameter_device=parameter_device,
            reason=reason,
        )
        for strategy, parameter_device in _strategies(deploy, devices, num)
    ]


def _several(machine: Machine, request: PlanRequest) -> tuple[list[Device], str] | None:
    """Return the devices of several replicas and why; None where one is enough, or the settings forbid it.

    One replica for each accelerator that can communicate and gets at least two samples. Without accelerators
    one for each NUMA node, so that no core computes with distant memory.
    """
    deploy = request.deploy
    if deploy.strategy not in {"auto", "ddp", "fsdp"} or deploy.clone_on_cpu or "," in request.device:
        return None
    fixed = (deploy.clones, deploy.optimizer_device, deploy.servers, deploy.shares)
    if fixed != ("auto", "auto", "auto", None):
        return None
    if not machine.accelerators or request.device == "cpu":
        most = min(int(machine.cores), machine.memory_bytes // REPLICA_MEMORY)
        num = min(machine.numa_nodes, most, request.batch // 2)
        nodes = [machine.devices[0]] * num
        return (nodes, f"{num} NUMA nodes: one replica on each") if num > 1 else None
    pool = _communicating(machine, request.device)
    chosen = _worthwhile(pool, request.batch)
    if len(chosen) < 2:
        return None
    left_out = len(pool) - len(chosen)
    slower = f", {left_out} left out: more would slow the others down" if left_out else ""
    return chosen, f"{len(chosen)} accelerators: one replica on each{slower}"


def _communicating(machine: Machine, wanted: str) -> list[Device]:
    """Return the accelerators of the most common kind that can send each other gradients."""
    kinds = [device.kind for device in machine.accelerators if wanted in {"auto", "gpu", device.kind}]
    able = [kind for kind in kinds if kind in COMMUNICATING]
    if not able:
        return []
    most_common = max(able, key=able.count)
    return [device for device in machine.accelerators if device.kind == most_common]


def _worthwhile(pool: Sequence[Device], batch: int) -> list[Device]:
    """Return the devices that make a step shortest, by their known speeds, with two samples or more each."""
    ranked = sorted(pool, key=_speed, reverse=True)
    seconds = {}
    for num in range(1, min(len(ranked), batch // 2) + 1):
        speeds = [_speed(device) for device in ranked[:num]]
        shares = by_speed(batch, speeds, least=2)
        seconds[num] = max(share / speed for share, speed in zip(shares, speeds, strict=True))
    best = min(seconds, key=lambda num: (seconds[num], num), default=0)
    return [device for device in pool if device in ranked[:best]]


def _speed(device: Device) -> float:
    """Return the speed of convolutions; devices that were not measured count as equal."""
    return 1.0 if device.speeds is None else device.speeds.convolution


def num_servers(deploy: DeployConfig) -> int:
    """Return the number of parameter servers that the settings request."""
    if deploy.servers != "auto":
        return deploy.servers
    return 1 if deploy.strategy == "parameter_server" else 0


def _devices(machine: Machine, deploy: DeployConfig, wanted: str, num: int) -> tuple[list[Device], str]:
    """Return one device for each clone, and why these."""
    if deploy.clone_on_cpu and wanted not in {"auto", "cpu"}:
        raise UsageError(f"deploy.clone_on_cpu=true: but device={wanted}", advice="leave one of them out")
    if num > 1:
        return _replica_devices(machine, deploy, wanted, num)
    if "," in wanted:
        names = wanted.split(",")
        if deploy.clones not in {"auto", len(names)}:
            raise UsageError(f"deploy.clones={deploy.clones}: device= names {len(names)} devices")
        return _listed(machine, names)
    clones = 1 if deploy.clones == "auto" else deploy.clones
    if deploy.clone_on_cpu:
        return [machine.devices[0]] * clones, "deploy.clone_on_cpu: all clones are on the CPU"
    if clones == 1:
        device, reason = _device(machine, wanted)
        return [device], reason
    return _accelerators(machine, wanted, clones, f"deploy.clones={clones}")


def _replica_devices(
    machine: Machine, deploy: DeployConfig, wanted: str, num: int
) -> tuple[list[Device], str]:
    clones = 1 if deploy.clones == "auto" else deploy.clones
    if clones > 1 and not num_servers(deploy):
        raise UsageError(
            f"deploy.clones={clones}: with several replicas each has one clone",
            advice="use deploy.strategy=parameter_server for several clones per replica",
        )
    setting = f"deploy.replicas={num}" + (f" deploy.clones={clones}" if clones > 1 else "")
    if "," in wanted:
        devices, reason = _listed(machine, wanted.split(","))
        if len(devices) != num * clones:
            raise UsageError(f"{setting}: device= names {len(devices)} devices")
        return devices, reason
    if deploy.clone_on_cpu or wanted == "cpu" or not machine.accelerators:
        _device(machine, wanted)
        return [machine.devices[0]] * num * clones, f"{setting}: the processes share the CPU"
    return _accelerators(machine, wanted, num * clones, setting)


def _accelerators(machine: Machine, wanted: str, num: int, setting: str) -> tuple[list[Device], str]:
    pool = [device for device in machine.accelerators if wanted in {"auto", "gpu", device.kind, device.name}]
    if num > len(pool):
        raise UsageError(
            f"{setting}: more than there are accelerators for device={wanted} ({len(pool)})",
            advice="use fewer, or put all on the CPU with deploy.clone_on_cpu=true",
        )
    fastest = sorted(pool, key=_speed, reverse=True)[:num]
    return [device for device in pool if device in fastest], f"{setting}: one on each accelerator"


def _listed(machine: Machine, names: Sequence[str]) -> tuple[list[Device], str]:
    devices = [_device(machine, name.strip())[0] for name in names]
    return devices, f"device={','.join(names)} was requested"


def _device(machine: Machine, wanted: str) -> tuple[Device, str]:
    names = [device.name for device in machine.devices]
    if wanted == "auto" and not machine.accelerators:
        return machine.devices[0], "no accelerator found: training on the CPU"
    if wanted == "auto":
        first, num = machine.accelerators[0], len(machine.accelerators)
        which = "only accelerator" if num == 1 else f"first of {num} accelerators"
        alone = num > 1 and first.kind not in COMMUNICATING
        why = f": replicas on {first.kind} cannot communicate" if alone else ""
        return first, f"training on the {which}{why}"
    for device in machine.devices:
        if wanted in {device.name, device.kind} or (wanted == "gpu" and device.kind != "cpu"):
            return device, f"device={wanted} was requested"
    raise UsageError(f"device={wanted}: not on this machine", advice=f"it has: {', '.join(names)}")


def _strategies(deploy: DeployConfig, devices: Sequence[Device], num: int) -> list[tuple[Strategy, str]]:
    """Return the possible strategies, each with its parameter device.

    `ddp` for several processes, `fsdp` where that needs too much memory; `clones` for several clones in one
    process, or with parameters in main memory; `parameter_server` only if requested.
    """
    beside, offload = devices[0].name, deploy.optimizer_device == "cpu" and devices[0].kind != "cpu"
    if deploy.strategy == "parameter_server" or (deploy.strategy == "auto" and deploy.servers != "auto"):
        return [("parameter_server", "cpu")]
    for name, value in (("servers", deploy.servers), ("staleness", deploy.staleness)):
        if value not in {"auto", None}:
            raise UsageError(
                f"deploy.{name}={value}: cannot be used with deploy.strategy={deploy.strategy}",
                advice="use deploy.strategy=parameter_server",
            )
    if num > 1 and offload:
        raise UsageError(f"deploy.optimizer_device=cpu: cannot be used with deploy.replicas={num}")
    usual: list[tuple[Strategy, str]]
    also: list[tuple[Strategy, str]] = []
    if num > 1:
        usual, setting = [("ddp", beside), ("fsdp", beside)], f"deploy.replicas={num}"
    elif offload or len(devices) > 1:
        setting = "deploy.optimizer_device=cpu" if offload else f"{len(devices)} clones"
        usual = [("clones", "cpu")]
    else:
        usual, setting = [("single", beside)], "one clone"
        usual += [("clones", "cpu")] if devices[0].kind != "cpu" else []
        also = [("clones", "cpu"), ("ddp", beside), ("fsdp", beside)]
    if deploy.strategy == "auto":
        return usual
    matching = [pair for pair in (*usual, *also) if pair[0] == deploy.strategy]
    if not matching:
        raise UsageError(
            f"deploy.strategy={deploy.strategy}: cannot be used with {setting}",
            advice=f"use deploy.strategy={usual[0][0]}",
        )
    return matching[:1]


def shares_of(
    deploy: DeployConfig,
    batch: int,
    num_clones: int,
    speeds: Sequence[float] | None = None,
    *,
    least: int = 1,
) -> list[int]:
    """Return `deploy.shares`, or shares by the speeds of the clones, or equal ones.

    Every share has `least` samples if the batch has enough.
    """
    if deploy.shares is None:
        if num_clones > batch:
            raise UsageError(f"{num_clones} clones: more than batch={batch} has samples")
        enough = batch >= least * num_clones
        return by_speed(batch, speeds or [1.0] * num_clones, least=least if enough else 1)
    text = ",".join(map(str, deploy.shares))
    if len(deploy.shares) != num_clones:
        raise UsageError(f"deploy.shares={text}: {len(deploy.shares)} shares for {num_clones} clones")
    if sum(deploy.shares) != batch:
        raise UsageError(
            f"deploy.shares={text}: add up to {sum(deploy.shares)}, but batch={batch}",
            advice="a share is how many of the batch's samples a clone computes",
        )
    return list(deploy.shares)


def by_speed(batch: int, speeds: Sequence[float], *, least: int = 1) -> list[int]:
    """Divide the batch by speed: each next sample goes to the clone that would finish it first.

    Every clone gets at least `least` samples, and a faster one never fewer than a slower one.
    """
    shares = [least] * len(speeds)
    waiting = [((least + 1) / speed, -speed, i) for i, speed in enumerate(speeds)]
    heapq.heapify(waiting)
    for _ in range(batch - least * len(shares)):
        _, slowness, first = waiting[0]
        shares[first] += 1
        heapq.heapreplace(waiting, ((shares[first] + 1) / speeds[first], slowness, first))
    return shares
