"""The plan that the settings of a run ask for: read from `plan=`, or made for the machine.

Pure decisions; the `Planner` of `planner.py` calls them with what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boxcrew.core.errors import UsageError
from boxcrew.core.workload import LinearBytes, PassCost, Peak, Workload
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.hardware.speed import with_speeds
from boxcrew.plan.hosts import plan_hosts
from boxcrew.plan.layouts import num_servers
from boxcrew.plan.observed import Observed
from boxcrew.plan.plan import Plan, Replica
from boxcrew.plan.request import PlanRequest, ReplicaRange
from boxcrew.plan.search import make_plan
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.schedule import RunLimits

KEPT = ("memory_format", "threads", "accumulation", "recompute", "precision")
"""Fields of a plan that decide the numbers of a run to the last bit."""
_NO_BYTES = LinearBytes(fixed=0, each=0)
_NO_PASS = PassCost(activations=_NO_BYTES, peak=Peak(moments=(_NO_BYTES,)), operations=0, traffic=0)
_ZERO = ("parameters", "gradients", "buffers", "largest_layer", "slots", "averages", "forward_operations")
NO_WORKLOAD = Workload(
    **dict.fromkeys(_ZERO, 0), batch=_NO_BYTES, without_recompute=_NO_PASS, with_recompute=_NO_PASS
)
"""A task that needs nothing: what cannot be planned for it cannot be planned for any."""


def choose_plan(
    config: RunConfig,
    machine: Machine,
    workload: Workload,
    *,
    num_samples: int,
    hosts: Sequence[Host] = (),
    observed: Observed | None = None,
) -> Plan:
    """Return the plan in `plan=` unchanged, or make one for this machine or for the replicas on `hosts`."""
    if config.plan is not None:
        plan = _read_plan(config, config.plan, hosts or (Host(name="", machine=machine, ranks=(0,)),))
        _require_own_devices(plan, hosts)
        return plan
    request = plan_request(config, num_samples)
    if len(hosts) > 1:
        plan = plan_hosts(hosts, workload, request, observed)
    else:
        if hosts and request.deploy.replicas == "auto":
            request = _with_replicas(request, len(hosts[0].ranks))
        plan = make_plan(machine, workload, request, observed)
    _require_own_devices(plan, hosts)
    return plan.model_copy(update={"task": config.task.title})


def plan_request(config: RunConfig, num_samples: int) -> PlanRequest:
    """Return the plan request of the settings, for a training set of `num_samples`."""
    length = RunLimits.of(
        steps=config.steps,
        epochs=config.epochs,
        seconds=config.time,
        num_samples=num_samples,
        batch=config.batch,
    )
    deploy = config.deploy
    if isinstance(deploy.replicas, ReplicaRange):  # how many there are is known when they have met
        deploy = deploy.model_copy(update={"replicas": "auto"})
    return PlanRequest(
        deploy=deploy,
        goal=config.goal,
        device=config.device,
        batch=config.batch,
        workers=config.loader.workers,
        cache=config.loader.cache,
        num_samples=num_samples,
        steps=float(length.steps),
        seconds=length.seconds,
        prefetch=config.loader.prefetch,
        eval_batch=config.evaluation.batch,
    )


def _with_replicas(request: PlanRequest, num: int) -> PlanRequest:
    return request.model_copy(update={"deploy": request.deploy.model_copy(update={"replicas": num})})


def planned_processes(config: RunConfig, before: Plan | None = None) -> tuple[int, int]:
    """Return the numbers of replicas and parameter servers to start on this machine.

    A resumed run keeps the numbers of `before`, the plan that it was made with. Impossible settings are
    refused before any process starts.
    """
    stages = config.task.stages()
    if stages and all(stage.kind == "solve" for stage in stages):  # the chief solves alone
        return 1, 0
    machine = probe_machine()
    is_kept = config.plan is None and config.deploy.replicas == "auto"
    if is_kept and before is not None and {*before.devices} <= {device.name for device in machine.devices}:
        return len(before.replicas), before.servers
    plan = _plan_without_workload(config, machine)
    refuse_servers(config, plan.servers)
    return len(plan.replicas), plan.servers


def _plan_without_workload(config: RunConfig, machine: Machine) -> Plan:
    """Return the plan for a task that needs nothing, with its processes."""
    if len(machine.accelerators) > 1:  # how many are worthwhile depends on their speeds
        machine = with_speeds(machine)
    if config.plan is not None:
        return _read_plan(config, config.plan, (Host(name="", machine=machine, ranks=(0,)),))
    request = plan_request(config, num_samples=config.batch)
    plan = make_plan(machine, NO_WORKLOAD, request, Observed(libraries=0))
    limits = config.deploy.replicas
    if isinstance(limits, ReplicaRange) and (num := limits.nearest(len(plan.replicas))) != len(plan.replicas):
        return make_plan(machine, NO_WORKLOAD, _with_replicas(request, num), Observed(libraries=0))
    return plan


def planned_servers(config: RunConfig, num_processes: int) -> int:
    """Return how many of the processes that were started externally become parameter servers."""
    plan = None if config.plan is None else Plan.read(config.plan, setting="plan")
    servers = num_servers(config.deploy) if plan is None else plan.servers
    if num_processes <= servers:
        raise UsageError(
            f"deploy.servers={servers}: none of the {num_processes} processes is left to compute",
            advice="start more processes, or set fewer servers",
        )
    refuse_servers(config, servers)
    return servers


def refuse_servers(config: RunConfig, servers: int) -> None:
    """Refuse parameter servers for a run with stages: they would have to tell the messages of two sessions
    apart, of which one replica begins the second while another ends the first.
    """
    if servers and config.task.stages():
        setting = "deploy.strategy=parameter_server" if config.plan is None else f"plan={config.plan}"
        raise UsageError(
            f"{setting}: a run with stages has no parameter servers",
            advice=f"leave {setting} out; deploy.replicas= works with deploy.strategy=ddp and fsdp",
        )


def _read_plan(config: RunConfig, path: Path, hosts: Sequence[Host]) -> Plan:
    plan = Plan.read(path, setting="plan")
    if plan.task not in {None, config.task.title}:
        raise UsageError(
            f"plan={path}: was made for {plan.task}, not for {config.task.title}",
            advice="leave plan= out to make a new plan, or delete `task` in the file to use it anyway",
        )
    if len(hosts) > 1:
        require_replicas(plan, sum(len(host.ranks) for host in hosts))
    for host in hosts:
        replicas = plan.replicas if len(hosts) == 1 else [plan.replicas[rank] for rank in host.ranks]
        devices = [clone.device for replica in replicas for clone in replica.clones]
        devices += [plan.parameter_device] if 0 in host.ranks else []
        _require_devices(devices, host.machine, path)
    return plan


def _require_own_devices(plan: Plan, hosts: Sequence[Host]) -> None:
    """Refuse a plan with two replicas on one accelerator."""
    ranks_of_hosts = [host.ranks for host in hosts] if len(hosts) > 1 else [range(len(plan.replicas))]
    for ranks in ranks_of_hosts:
        used = [device for rank in ranks for device in {clone.device for clone in plan.replicas[rank].clones}]
        names = [device for device in used if device != "cpu"]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"plan: {names.count(name)} replicas on {name}: each needs its own device",
                    advice="use other devices in device=, or fewer deploy.replicas=",
                )


def require_replicas(plan: Plan, num: int) -> None:
    """Refuse a plan for another number of replicas."""
    if len(plan.replicas) != num:
        raise UsageError(
            f"plan: {len(plan.replicas)} replicas, but {num} were started",
            advice=f"start {plan.num_processes} processes in all, or make a plan for {num} replicas",
        )


def _require_devices(wanted: Sequence[str], machine: Machine, path: Path) -> None:
    names = [device.name for device in machine.devices]
    for device in wanted:
        if device not in names:
            raise UsageError(
                f"plan={path}: device {device} is not on this machine",
                advice=f"it has: {', '.join(names)}",
            )


def with_clones_of(config: RunConfig, before: Plan, *, num_replicas: int) -> RunConfig:
    """Return the settings to plan a resumed run with: it keeps the clones of the plan `before`, however many
    replicas there are now, unless the settings say otherwise or there are more replicas than clones.
    """
    deploy, num = config.deploy, len(before.clones)
    is_chosen = config.plan is not None or deploy.logical_clones != "auto" or deploy.shares is not None
    is_ddp = before.strategy == "ddp" and deploy.strategy in {"auto", "ddp"} and deploy.servers == "auto"
    if is_chosen or not is_ddp or num == 1 or num < num_replicas:
        return config
    return config.model_copy(update={"deploy": deploy.model_copy(update={"logical_clones": num})})


def resumed_plan(plan: Plan, before: Plan, config: RunConfig, *, machine: Machine, then: Machine) -> Plan:
    """Return the plan of a resumed run with the automatic choices of the plan `before`, if the CPU is the one
    that it had `then`. Its steps are then the same bit for bit as without the interruption.
    """
    if config.plan is not None:
        return plan
    if plan.strategy == before.strategy == "ddp" and len(plan.clones) == len(before.clones):
        before = _dealt_like(plan, before)
    same_cpu = (then.cores, then.devices[0].model) == (machine.cores, machine.devices[0].model)
    names = [name for name in KEPT if getattr(config.deploy, name) == "auto"]
    if not names or not same_cpu or _devices(before) != _devices(plan):
        return plan
    kept: dict[str, Any] = {name: getattr(before, name) for name in names}
    if config.deploy.shares is None:
        kept["replicas"] = [replica.tree() for replica in before.replicas]
    try:
        resumed = Plan.of(plan.tree() | kept)
    except UsageError as error:
        return plan.with_reason(f"the original settings of this run cannot be kept: {error.message}")
    return resumed.with_reason(f"{', '.join(names).replace('_', ' ')} kept from the start of the run")


def _dealt_like(plan: Plan, before: Plan) -> Plan:
    """Return the plan `before` with its shares on the replicas of another plan with as many clones."""
    shares = iter(before.clones)
    replicas = [
        Replica(clones=tuple(clone.model_copy(update={"share": next(shares).share}) for clone in each.clones))
        for each in plan.replicas
    ]
    return before.model_copy(update={"replicas": tuple(replicas)})


def _devices(plan: Plan) -> list[list[str]]:
    """Return the devices of every replica's clones."""
    return [[clone.device for clone in replica.clones] for replica in plan.replicas]
