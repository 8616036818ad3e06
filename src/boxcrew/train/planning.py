"""Where the two columns meet before the first step: a task's needs and a machine become a plan."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.search import InputWishes, make_plan, num_servers
from boxcrew.train.config import RunConfig

MEASURED = ("memory_format", "threads")  # what a trial may change (train/trial.py)


def choose_plan(config: RunConfig, machine: Machine, model: nn.Module, *, replicas: int = 1) -> Plan:
    """The plan in `plan=`, word for word, or one made for this machine and as many replicas."""
    return _plan(config, machine, faster_format_on_cpus(model), replicas)


def planned_processes(config: RunConfig, num_started: int | None) -> tuple[int, int]:
    """How many replicas and parameter servers the settings ask for, with as many processes as there are if
    somebody has started some; what cannot be is refused before any is.
    """
    servers = 0 if config.plan is not None else num_servers(config.deploy)
    if num_started is not None and num_started <= servers:
        raise UsageError(
            f"deploy.servers={servers}: of {num_started} processes none is left to compute",
            advice="start more processes, or fewer servers",
        )
    replicas = 1 if num_started is None else num_started - servers
    plan = _plan(config, probe_machine(), "contiguous", replicas)
    return len(plan.replicas), plan.servers


def _plan(config: RunConfig, machine: Machine, cpu_format: MemoryFormat, replicas: int) -> Plan:
    if config.plan is not None:
        plan = Plan.read(config.plan, setting="plan")
        _require_devices(plan, machine, config.plan)
        return plan
    wishes = config.deploy
    if wishes.replicas == "auto":
        wishes = wishes.model_copy(update={"replicas": replicas})
    return make_plan(
        machine,
        wishes,
        device=config.device,
        batch=config.batch,
        inputs=InputWishes(workers=config.loader.workers, cache=config.loader.cache),
        cpu_format=cpu_format,
    )


def require_replicas(plan: Plan, num: int) -> None:
    """A plan is for as many replicas as there are."""
    if len(plan.replicas) != num:
        raise UsageError(
            f"plan: {len(plan.replicas)} replicas, but {num} were started",
            advice=f"start {plan.num_processes} processes in all, or make a plan for {num} replicas",
        )


def _require_devices(plan: Plan, machine: Machine, path: Path) -> None:
    names = [device.name for device in machine.devices]
    wanted = [*(clone.device for clone in plan.clones), plan.parameter_device, plan.optimizer_device]
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
