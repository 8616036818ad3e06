"""Which devices compute, in how many processes, and where the parameters may live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import Strategy
from boxcrew.plan.request import DeployConfig, PlanRequest
from boxcrew.plan.shares import by_speed

ROOM = 2 << 30  # bytes of main memory that a replica on the CPU should have
TALKING = ("cuda", "xpu")  # kinds of accelerators whose replicas can send each other gradients


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Clones on devices."""

    strategy: Strategy
    devices: tuple[Device, ...]
    replicas: int
    servers: int
    keeper: str  # where the parameters live
    reason: str


def layouts_of(machine: Machine, request: PlanRequest) -> list[Layout]:
    """What may be chosen from, the usual first: others are for models that do not fit."""
    deploy = request.deploy
    several = _several(machine, request) if deploy.replicas == "auto" else None
    if several is not None:
        chosen, reason = several
        num = len(chosen)
    else:
        num = 1 if deploy.replicas == "auto" else deploy.replicas
        chosen, reason = _devices(machine, deploy, request.device, num)
    return [
        Layout(
            strategy=strategy,
            devices=tuple(chosen),
            replicas=num,
            servers=num_servers(deploy) if strategy == "parameter_server" else 0,
            keeper=keeper,
            reason=reason,
        )
        for strategy, keeper in _strategies(deploy, chosen, num)
    ]


def _several(machine: Machine, request: PlanRequest) -> tuple[list[Device], str] | None:
    """A replica for each accelerator, where they can talk to each other and each has two samples at least.
    Without accelerators one for each part of the memory, so that no core computes with memory that is far
    from it. None where one is enough, or the settings say otherwise.
    """
    deploy = request.deploy
    if deploy.strategy not in {"auto", "ddp", "fsdp"} or deploy.clone_on_cpu or "," in request.device:
        return None
    if (deploy.clones, deploy.optimizer_device, deploy.servers, deploy.shares) != (
        "auto",
        "auto",
        "auto",
        None,
    ):
        return None
    if not machine.accelerators or request.device == "cpu":
        rooms = min(int(machine.cores), machine.memory_bytes // ROOM)
        num = min(machine.numa_nodes, rooms, request.batch // 2)
        nodes = [machine.devices[0]] * num
        return (nodes, f"{num} NUMA nodes: a replica on each") if num > 1 else None
    pool = _talking(machine, request.device)
    chosen = _worth_it(pool, request.batch)
    if len(chosen) < 2:
        return None
    left = f", {len(pool) - len(chosen)} would hold them up" if len(pool) > len(chosen) else ""
    return chosen, f"{len(chosen)} accelerators: a replica on each{left}"


def _talking(machine: Machine, wanted: str) -> list[Device]:
    """The most accelerators of one kind that can."""
    kinds = [one.kind for one in machine.accelerators if wanted in {"auto", "gpu", one.kind}]
    able = [kind for kind in kinds if kind in TALKING]
    if not able:
        return []
    kind = max(able, key=able.count)
    return [one for one in machine.accelerators if one.kind == kind]


def _worth_it(pool: Sequence[Device], batch: int) -> list[Device]:
    """Those with which a step is shortest, as far as their speeds are known; two samples for each."""
    ranked = sorted(pool, key=_speed, reverse=True)
    seconds = {}
    for num in range(1, min(len(ranked), batch // 2) + 1):
        speeds = [_speed(one) for one in ranked[:num]]
        shares = by_speed(batch, speeds, least=2)
        seconds[num] = max(share / speed for share, speed in zip(shares, speeds, strict=True))
    best = min(seconds, key=lambda num: (seconds[num], num), default=0)
    return [one for one in pool if one in ranked[:best]]


def _speed(device: Device) -> float:
    """Of convolutions. Those of devices that are not measured count alike."""
    return 1.0 if device.speeds is None else device.speeds.convolution


def num_servers(deploy: DeployConfig) -> int:
    """That are asked for."""
    if deploy.servers != "auto":
        return deploy.servers
    return 1 if deploy.strategy == "parameter_server" else 0


def _devices(
    machine: Machine, deploy: DeployConfig, wanted: str, num_replicas: int
) -> tuple[list[Device], str]:
    """One for each clone, and why these."""
    if deploy.clone_on_cpu and wanted not in {"auto", "cpu"}:
        raise UsageError(f"deploy.clone_on_cpu=true: but device={wanted}", advice="leave one of them out")
    if num_replicas > 1:
        return _of_replicas(machine, deploy, wanted, num_replicas)
    if "," in wanted:
        names = wanted.split(",")
        if deploy.clones not in {"auto", len(names)}:
            raise UsageError(f"deploy.clones={deploy.clones}: device= names {len(names)} devices")
        return _listed(machine, names)
    num = 1 if deploy.clones == "auto" else deploy.clones
    if deploy.clone_on_cpu:
        return [machine.devices[0]] * num, "deploy.clone_on_cpu: all clones are on the CPU"
    if num == 1:
        device, reason = _device(machine, wanted)
        return [device], reason
    return _accelerators(machine, wanted, num, f"deploy.clones={num}")


def _of_replicas(machine: Machine, deploy: DeployConfig, wanted: str, num: int) -> tuple[list[Device], str]:
    clones = 1 if deploy.clones == "auto" else deploy.clones
    if clones > 1 and not num_servers(deploy):
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
    if deploy.clone_on_cpu or wanted == "cpu" or not machine.accelerators:
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
    fastest = sorted(pool, key=_speed, reverse=True)[:num]
    return [one for one in pool if one in fastest], f"{what}: one on each accelerator"


def _listed(machine: Machine, names: Sequence[str]) -> tuple[list[Device], str]:
    devices = [_device(machine, name.strip())[0] for name in names]
    return devices, f"device={','.join(names)} was asked for"


def _device(machine: Machine, wanted: str) -> tuple[Device, str]:
    names = [device.name for device in machine.devices]
    if wanted == "auto":
        if machine.accelerators:
            return machine.accelerators[0], _first_of(machine.accelerators)
        return machine.devices[0], "no accelerator here: the CPU computes"
    for device in machine.devices:
        if wanted in {device.name, device.kind} or (wanted == "gpu" and device.kind != "cpu"):
            return device, f"device={wanted} was asked for"
    raise UsageError(f"device={wanted}: not on this machine", advice=f"it has: {', '.join(names)}")


def _strategies(deploy: DeployConfig, chosen: Sequence[Device], num: int) -> list[tuple[Strategy, str]]:
    """With where the parameters live: `ddp` for several processes, divided where that does not fit; `clones`
    where a process has several; in main memory where a device has no room for them; `parameter_server` only
    if asked for.
    """
    beside, off = chosen[0].name, deploy.optimizer_device == "cpu" and chosen[0].kind != "cpu"
    if deploy.strategy == "parameter_server" or (deploy.strategy == "auto" and deploy.servers != "auto"):
        return [("parameter_server", "cpu")]
    for name, value in (("servers", deploy.servers), ("staleness", deploy.staleness)):
        if value not in {"auto", None}:
            raise UsageError(
                f"deploy.{name}={value}: not with deploy.strategy={deploy.strategy}",
                advice="deploy.strategy=parameter_server has servers",
            )
    if num > 1 and off:
        raise UsageError(f"deploy.optimizer_device=cpu: not with deploy.replicas={num}")
    usual: list[tuple[Strategy, str]]
    also: list[tuple[Strategy, str]] = []
    if num > 1:
        usual, what = [("ddp", beside), ("fsdp", beside)], f"deploy.replicas={num}"
    elif off or len(chosen) > 1:
        what = "deploy.optimizer_device=cpu" if off else f"{len(chosen)} clones"
        usual = [("clones", "cpu")]
    else:
        usual, what = [("single", beside)], "one clone"
        usual += [("clones", "cpu")] if chosen[0].kind != "cpu" else []
        also = [("clones", "cpu"), ("ddp", beside), ("fsdp", beside)]
    if deploy.strategy == "auto":
        return usual
    fitting = [pair for pair in (*usual, *also) if pair[0] == deploy.strategy]
    if not fitting:
        raise UsageError(
            f"deploy.strategy={deploy.strategy}: not with {what}",
            advice=f"deploy.strategy={usual[0][0]} does it",
        )
    return fitting[:1]


def _first_of(accelerators: Sequence[Device]) -> str:
    """Why the others are idle."""
    first = accelerators[0]
    if len(accelerators) == 1:
        return "the accelerator computes"
    if first.kind not in TALKING:
        return f"the first of {len(accelerators)} accelerators computes: replicas on {first.kind} cannot talk"
    return f"the first of {len(accelerators)} accelerators computes"
