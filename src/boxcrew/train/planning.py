"""Where the two columns meet before the first step: a task's needs and a machine become a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Host, Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.hosts import plan_hosts
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.search import DeployConfig, InputWishes, make_plan, num_servers
from boxcrew.train.config import RunConfig

MEASURED = ("memory_format", "threads")  # what a trial may change (train/trial.py)


def choose_plan(config: RunConfig, machine: Machine, model: nn.Module, *, hosts: Sequence[Host] = ()) -> Plan:
    """The plan in `plan=`, word for word, or one made for this machine, or for these hosts with the replicas
    that are there.
    """
    alone = Host(name="", machine=machine, ranks=(0,))
    return _plan(config, hosts or (alone,), faster_format_on_cpus(model))


def planned_processes(config: RunConfig) -> tuple[int, int]:
    """How many replicas and parameter servers the settings ask for on this machine; what cannot be is refused
    before any process is started.
    """
    plan = _plan(config, (Host(name="", machine=probe_machine(), ranks=(0,)),), "contiguous")
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


def _plan(config: RunConfig, hosts: Sequence[Host], cpu_format: MemoryFormat) -> Plan:
    if config.plan is not None:
        plan = Plan.read(config.plan, setting="plan")
        if plan.task not in {None, task_name(config)}:
            raise UsageError(
                f"plan={config.plan}: was made for {plan.task}, not for {task_name(config)}",
                advice="leave plan= out, and one is made; or take its task out if you know better",
            )
        if len(hosts) > 1:
            require_replicas(plan, sum(len(host.ranks) for host in hosts))
        for host in hosts:
            there = plan.replicas if len(hosts) == 1 else [plan.replicas[rank] for rank in host.ranks]
            devices = [clone.device for replica in there for clone in replica.clones]
            devices += [plan.parameter_device] if 0 in host.ranks else []
            _require_devices(devices, host.machine, config.plan)
        _require_own_devices(plan, hosts)
        return plan

    def plan_part(machine: Machine, wishes: DeployConfig, batch: int) -> Plan:
        return make_plan(
            machine,
            wishes,
            device=config.device,
            batch=batch,
            inputs=InputWishes(workers=config.loader.workers, cache=config.loader.cache),
            cpu_format=cpu_format,
        )

    if len(hosts) > 1:
        plan = plan_hosts(hosts, config.deploy, config.batch, plan_part)
    else:
        wishes = config.deploy
        if wishes.replicas == "auto":
            wishes = wishes.model_copy(update={"replicas": len(hosts[0].ranks)})
        plan = plan_part(hosts[0].machine, wishes, config.batch)
    _require_own_devices(plan, hosts)
    return plan.model_copy(update={"task": task_name(config)})


def _require_own_devices(plan: Plan, hosts: Sequence[Host]) -> None:
    """No accelerator has two replicas."""
    for host in hosts:
        there = plan.replicas if len(hosts) == 1 else [plan.replicas[rank] for rank in host.ranks]
        names = [clone.device for replica in there for clone in replica.clones if clone.device != "cpu"]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"plan: {names.count(name)} replicas on {name}: each needs one of its own",
                    advice="other devices in device=, or fewer deploy.replicas=",
                )


def task_name(config: RunConfig) -> str:
    """What a plan says that it is for."""
    return f"detection by {config.detector.name}"


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
    left = [name for name in MEASURED if getattr(config.deploy, name) == "auto"]
    if not left or not same_cpu or before.replicas != plan.replicas:
        return plan
    kept = plan.model_copy(update={name: getattr(before, name) for name in left})
    return kept.because(f"{' and '.join(left).replace('_', ' ')} as when the run began")


def faster_format_on_cpus(model: nn.Module) -> MemoryFormat:
    """Networks of depthwise convolutions run about 1.5 to 2.3 times faster channels-last on CPUs, those of
    full convolutions 1.6 to 1.8 times slower. Both are figures from elsewhere (docs/decisions/0005).
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    depthwise = any(c.groups > 1 and c.groups == c.in_channels for c in convolutions)
    return "channels_last" if depthwise else "contiguous"
