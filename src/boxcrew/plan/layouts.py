"""Layouts: which devices compute what share of a step, in how many processes, and where parameters live."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.candidate import Candidate
from boxcrew.plan.dealing import deal
from boxcrew.plan.plan import Strategy
from boxcrew.plan.request import DeployConfig, PlanRequest

COMMUNICATING = ("cuda", "xpu")  # kinds of accelerators whose replicas can send each other gradients


def layouts_of(machine: Machine, request: PlanRequest) -> list[Candidate]:
    """Return candidates with open choices beyond the layout: the usual one, then those for larger models."""
    deploy = request.deploy
    num = deploy.replicas if isinstance(deploy.replicas, int) else 1
    is_open = not isinstance(deploy.replicas, int)
    devices, reason = _one_replica_each(machine, request) if is_open else ([], "")
    if devices:
        num = len(devices)
    else:
        devices, reason = _devices(machine, deploy, request.device, num)
    devices = _of_clones(devices, deploy, num)
    return [
        Candidate(
            strategy=strategy,
            devices=tuple(devices),
            shares=(1,) * len(devices),
            replicas=num,
            servers=num_servers(deploy) if strategy == "parameter_server" else 0,
            exact=deploy.exact is not False,
            parameter_device=parameter_device,
            reason=reason,
        )
        for strategy, parameter_device in _strategies(deploy, devices, num)
    ]


def _of_clones(devices: Sequence[Device], deploy: DeployConfig, num: int) -> list[Device]:
    """Return a device for each clone; with `deploy.logical_clones` several may have that of their replica."""
    wanted = deploy.logical_clones
    if wanted == "auto":
        return list(devices)
    setting = f"deploy.logical_clones={wanted}"
    if deploy.strategy not in {"auto", "ddp"} or deploy.servers != "auto" or len(devices) != num:
        raise UsageError(f"{setting}: only for deploy.strategy=ddp, with one device for each replica")
    if wanted < num:
        raise UsageError(
            f"{setting}: fewer than the {num} replicas, each of which computes one at least",
            advice=f"deploy.logical_clones={num} or more, or fewer deploy.replicas=",
        )
    return [device for device, own in zip(devices, deal(wanted, num), strict=True) for _ in own]


def _one_replica_each(machine: Machine, request: PlanRequest) -> tuple[list[Device], str]:
    """Return the devices of several replicas and why; none where one is enough, or the settings forbid it.

    One replica for each accelerator that can communicate and gets at least two samples. Without accelerators
    one for each NUMA node, so that no core computes with distant memory.
    """
    deploy, wanted = request.deploy, request.device
    fixed = (deploy.clone_on_cpu, deploy.clones, deploy.optimizer_device, deploy.servers, deploy.shares)
    is_free = deploy.strategy in {"auto", "ddp", "fsdp"} and fixed == (False, "auto", "auto", "auto", None)
    if not is_free or "," in wanted:
        return [], ""
    if not machine.accelerators or wanted == "cpu":
        most = min(int(machine.cores), machine.memory_bytes // (2 << 30))  # each should have 2 GiB
        num = min(machine.numa_nodes, most, request.batch // 2)
        return [machine.devices[0]] * num if num > 1 else [], f"{num} NUMA nodes: one replica on each"
    kinds = [device.kind for device in machine.accelerators if wanted in {"auto", "gpu", device.kind}]
    able = [kind for kind in kinds if kind in COMMUNICATING]
    most_common = max(able, key=able.count, default=None)
    pool = [device for device in machine.accelerators if device.kind == most_common]
    chosen = _worthwhile(pool, request.batch)
    left_out = len(pool) - len(chosen)
    slower = f", {left_out} left out: more would slow the others down" if left_out else ""
    reason = f"{len(chosen)} accelerators: one replica on each{slower}"
    return chosen if len(chosen) > 1 else [], reason


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
    """Return one device for each clone of `num` replicas, and why these."""
    if deploy.clone_on_cpu and wanted not in {"auto", "cpu"}:
        raise UsageError(f"deploy.clone_on_cpu=true: but device={wanted}", advice="leave one of them out")
    names = wanted.split(",") if "," in wanted else []
    usual = len(names) if names and num == 1 else 1
    clones = usual if deploy.clones == "auto" else deploy.clones
    if num > 1 and clones > 1 and not num_servers(deploy):
        raise UsageError(
            f"deploy.clones={clones}: with several replicas each has one clone",
            advice="use deploy.strategy=parameter_server for several clones per replica",
        )
    settings = {"deploy.replicas": num, "deploy.clones": clones}
    setting = " ".join(f"{key}={value}" for key, value in settings.items() if value > 1) or "deploy.clones=1"
    if names:
        if len(names) != num * clones:
            raise UsageError(f"{setting}: device= names {len(names)} devices")
        return [_device(machine, name.strip())[0] for name in names], f"device={wanted} was requested"
    if num > 1 and (deploy.clone_on_cpu or wanted == "cpu" or not machine.accelerators):
        _device(machine, wanted)  # which may not be there
        return [machine.devices[0]] * num * clones, f"{setting}: the processes share the CPU"
    if deploy.clone_on_cpu:
        return [machine.devices[0]] * clones, "deploy.clone_on_cpu: all clones are on the CPU"
    if num * clones == 1:
        device, reason = _device(machine, wanted)
        return [device], reason
    pool = [device for device in machine.accelerators if wanted in {"auto", "gpu", device.kind, device.name}]
    if num * clones > len(pool):
        raise UsageError(
            f"{setting}: more than there are accelerators for device={wanted} ({len(pool)})",
            advice="use fewer, or put all on the CPU with deploy.clone_on_cpu=true",
        )
    fastest = sorted(pool, key=_speed, reverse=True)[: num * clones]
    return [device for device in pool if device in fastest], f"{setting}: one on each accelerator"


def _device(machine: Machine, wanted: str) -> tuple[Device, str]:
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
    names = ", ".join(device.name for device in machine.devices)
    spelling = f"a device has a kind, such as cuda:{wanted}; " if wanted.isdigit() else ""
    raise UsageError(f"device={wanted}: not on this machine", advice=f"{spelling}it has: {names}")


def _strategies(deploy: DeployConfig, devices: Sequence[Device], num: int) -> list[tuple[Strategy, str]]:
    """Return the possible strategies, each with its parameter device.

    `ddp` for several processes, `fsdp` where that needs too much memory; `clones` for several clones in one
    process, or with parameters in main memory; `parameter_server` only if requested.
    """
    if deploy.exact is True and deploy.strategy in {"fsdp", "parameter_server", "clones"}:
        raise UsageError(
            f"deploy.exact=true: deploy.strategy={deploy.strategy} adds up in an order that depends on the "
            "number of replicas",
            advice="use deploy.strategy=ddp, or leave deploy.exact out",
        )
    if deploy.strategy == "parameter_server" or (deploy.strategy == "auto" and deploy.servers != "auto"):
        return [("parameter_server", "cpu")]
    for name, value in (("servers", deploy.servers), ("staleness", deploy.staleness)):
        if value not in {"auto", None}:
            raise UsageError(
                f"deploy.{name}={value}: cannot be used with deploy.strategy={deploy.strategy}",
                advice="use deploy.strategy=parameter_server",
            )
    beside, offload = devices[0].name, deploy.optimizer_device == "cpu" and devices[0].kind != "cpu"
    if num > 1 and offload:
        raise UsageError(f"deploy.optimizer_device=cpu: cannot be used with deploy.replicas={num}")
    in_turn = deploy.logical_clones != "auto" and deploy.logical_clones > 1
    if in_turn and offload:
        raise UsageError("deploy.optimizer_device=cpu: cannot be used with deploy.logical_clones")
    several: list[tuple[Strategy, str]] = [("ddp", beside), ("fsdp", beside)]
    if in_turn or deploy.exact is True:
        several = several[:1]
    usual: list[tuple[Strategy, str]] = [("clones", "cpu")]
    also: list[tuple[Strategy, str]] = []
    if num > 1 or in_turn:
        usual, setting = several, f"deploy.replicas={num}"
    elif offload or len(devices) > 1:
        setting = "deploy.optimizer_device=cpu" if offload else f"{len(devices)} clones"
    else:
        also, setting = [*usual, *several], "one clone"
        usual = [("single", beside), *(usual if devices[0].kind != "cpu" else [])]
    if deploy.strategy == "auto":
        return usual
    matching = [pair for pair in (*usual, *also) if pair[0] == deploy.strategy]
    if not matching:
        advice = f"use deploy.strategy={usual[0][0]}"
        raise UsageError(f"deploy.strategy={deploy.strategy}: cannot be used with {setting}", advice=advice)
    return matching[:1]


def shares_of(deploy: DeployConfig, batch: int, speeds: Sequence[float], *, least: int = 1) -> list[int]:
    """Return `deploy.shares`, or shares by the speeds of the clones, with `least` samples where possible."""
    num_clones = len(speeds)
    if deploy.shares is None:
        if num_clones > batch:
            raise UsageError(f"{num_clones} clones: more than batch={batch} has samples")
        return by_speed(batch, speeds, least=least if batch >= least * num_clones else 1)
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
    """Give every clone `least` samples, and each next one to the clone that would finish it first."""
    shares = [least] * len(speeds)
    waiting = [((least + 1) / speed, -speed, i) for i, speed in enumerate(speeds)]
    heapq.heapify(waiting)
    for _ in range(batch - least * len(shares)):
        _, slowness, first = waiting[0]
        shares[first] += 1
        heapq.heapreplace(waiting, ((shares[first] + 1) / speeds[first], slowness, first))
    return shares
