"""Where the two columns meet before the first step: a task's needs and a machine become a plan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from boxcrew.core.errors import UsageError
from boxcrew.core.workload import Line, Pass, Peak, Workload
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.hardware.speed import measured
from boxcrew.plan.hosts import plan_hosts
from boxcrew.plan.layouts import num_servers
from boxcrew.plan.observed import Observed
from boxcrew.plan.plan import Plan
from boxcrew.plan.request import DeployConfig, PlanRequest
from boxcrew.plan.search import make_plan
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.schedule import RunLimits

KEPT = ("memory_format", "threads", "accumulation", "recompute", "precision")
"""What was left to us when a run began, and decides its numbers to the last bit."""
_NO_BYTES = Line(fixed=0, each=0)
_NO_PASS = Pass(activations=_NO_BYTES, peak=Peak(moments=(_NO_BYTES,)), operations=0, traffic=0)
NOTHING = Workload(
    parameters=0,
    gradients=0,
    buffers=0,
    largest_layer=0,
    slots=0,
    averages=0,
    batch=_NO_BYTES,
    whole=_NO_PASS,
    recomputed=_NO_PASS,
    forward_operations=0,
)
"""A task that takes nothing: what cannot be planned for it cannot be for any."""


def choose_plan(
    config: RunConfig,
    machine: Machine,
    workload: Workload,
    *,
    num_samples: int,
    hosts: Sequence[Host] = (),
    observed: Observed | None = None,
) -> Plan:
    """The plan in `plan=`, word for word, or one made for this machine, or for these hosts with the replicas
    that are there.
    """
    if config.plan is not None:
        plan = _read_plan(config, config.plan, hosts or (Host(name="", machine=machine, ranks=(0,)),))
        _require_own_devices(plan, hosts)
        return plan
    request = plan_request(config, num_samples)

    def plan_part(there: Machine, deploy: DeployConfig, batch: int) -> Plan:
        part = request.model_copy(update={"deploy": deploy, "batch": batch})
        return make_plan(there, workload, part, observed)

    if len(hosts) > 1:
        plan = plan_hosts(hosts, config.deploy, config.batch, plan_part)
    else:
        deploy = config.deploy
        if hosts and deploy.replicas == "auto":
            deploy = deploy.model_copy(update={"replicas": len(hosts[0].ranks)})
        plan = plan_part(machine, deploy, config.batch)
    _require_own_devices(plan, hosts)
    return plan.model_copy(update={"task": task_name(config)})


def plan_request(config: RunConfig, num_samples: int) -> PlanRequest:
    """What the settings ask of a plan, for a training set of that size."""
    length = RunLimits.of(
        steps=config.steps,
        epochs=config.epochs,
        seconds=config.time,
        num_samples=num_samples,
        batch=config.batch,
    )
    return PlanRequest(
        deploy=config.deploy,
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


def planned_processes(config: RunConfig, begun_in: Path | None = None) -> tuple[int, int]:
    """How many replicas and parameter servers the settings ask for on this machine, or a run that goes on had
    when it began; what cannot be is refused before any process is started.
    """
    machine = probe_machine()
    if begun_in is not None and config.plan is None and config.deploy.replicas == "auto":
        with suppress(UsageError):
            before = Plan.read(begun_in / "plan.json", setting="plan")
            if {*before.devices} <= {device.name for device in machine.devices}:
                return len(before.replicas), before.servers
    if len(machine.accelerators) > 1:  # which of them are worth it depends on their speeds
        machine = measured(machine)
    if config.plan is not None:
        plan = _read_plan(config, config.plan, (Host(name="", machine=machine, ranks=(0,)),))
        return len(plan.replicas), plan.servers
    plan = make_plan(machine, NOTHING, plan_request(config, num_samples=config.batch), Observed(libraries=0))
    return len(plan.replicas), plan.servers


def planned_servers(config: RunConfig, num_processes: int) -> int:
    """How many of the processes that somebody has started are to be parameter servers."""
    plan = None if config.plan is None else Plan.read(config.plan, setting="plan")
    servers = num_servers(config.deploy) if plan is None else plan.servers
    if num_processes <= servers:
        raise UsageError(
            f"deploy.servers={servers}: of {num_processes} processes none is left to compute",
            advice="start more processes, or give fewer servers",
        )
    return servers


def _read_plan(config: RunConfig, path: Path, hosts: Sequence[Host]) -> Plan:
    plan = Plan.read(path, setting="plan")
    if plan.task not in {None, task_name(config)}:
        raise UsageError(
            f"plan={path}: was made for {plan.task}, not for {task_name(config)}",
            advice="leave plan= out, and one is made; or take its task out if you know better",
        )
    if len(hosts) > 1:
        require_replicas(plan, sum(len(host.ranks) for host in hosts))
    for host in hosts:
        there = plan.replicas if len(hosts) == 1 else [plan.replicas[rank] for rank in host.ranks]
        devices = [clone.device for replica in there for clone in replica.clones]
        devices += [plan.parameter_device] if 0 in host.ranks else []
        _require_devices(devices, host.machine, path)
    return plan


def _require_own_devices(plan: Plan, hosts: Sequence[Host]) -> None:
    """No accelerator has two replicas."""
    ranks = [host.ranks for host in hosts] if len(hosts) > 1 else [range(len(plan.replicas))]
    for own in ranks:
        there = [plan.replicas[rank] for rank in own]
        names = [clone.device for replica in there for clone in replica.clones if clone.device != "cpu"]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"plan: {names.count(name)} replicas on {name}: each needs one of its own",
                    advice="other devices in device=, or fewer deploy.replicas=",
                )


def task_name(config: RunConfig) -> str:
    """What a plan says that it is for."""
    return config.task.title


def require_replicas(plan: Plan, num: int) -> None:
    """A plan is for as many replicas as there are."""
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


def as_before(plan: Plan, folder: Path, machine: Machine, config: RunConfig) -> Plan:
    """The plan of a run that goes on: on the same CPU, what is left to us stays as it was when the run began,
    so that its steps go on bit for bit.
    """
    if config.plan is not None:
        return plan
    try:
        before = Plan.read(folder / "plan.json", setting="plan")
        then = Machine.read(folder / "hardware.json", setting="machine")
    except UsageError as error:
        return plan.because(f"how the run began to compute is not known: {error.message}")
    same_cpu = (then.cores, then.devices[0].model) == (machine.cores, machine.devices[0].model)
    left = [name for name in KEPT if getattr(config.deploy, name) == "auto"]
    if not left or not same_cpu or _without_shares(before) != _without_shares(plan):
        return plan
    kept = {name: getattr(before, name) for name in left}
    if config.deploy.shares is None:
        kept["replicas"] = before.replicas
    try:
        same = Plan.of(plan.tree() | _trees(kept))
    except UsageError as error:
        return plan.because(f"not as the run began: {error.message}")
    return same.because(f"{', '.join(left).replace('_', ' ')} as when the run began")


def _without_shares(plan: Plan) -> list[list[str]]:
    """Who computes, whatever the speeds of the devices have been found to be."""
    return [[clone.device for clone in replica.clones] for replica in plan.replicas]


def _trees(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [one.tree() for one in value] if name == "replicas" else value for name, value in values.items()
    }
