"""Where the two columns meet before the first step: a task's needs and a machine become a plan."""

from __future__ import annotations

import json
from typing import Any

from torch import nn

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Machine
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.search import InputWishes, make_plan
from boxcrew.train.config import RunConfig


def choose_plan(config: RunConfig, machine: Machine, model: nn.Module) -> Plan:
    """The plan in `plan=`, word for word, or one made for this machine."""
    if config.plan is not None:
        plan = _read(config)
        names = [device.name for device in machine.devices]
        if plan.clone_device not in names:
            raise UsageError(
                f"plan={config.plan}: device {plan.clone_device} is not on this machine",
                advice=f"it has: {', '.join(names)}",
            )
        return plan
    return make_plan(
        machine,
        config.deploy,
        device=config.device,
        batch=config.batch,
        inputs=InputWishes(workers=config.loader.workers, cache=config.loader.cache),
        cpu_format=faster_format_on_cpus(model),
    )


def _read(config: RunConfig) -> Plan:
    assert config.plan is not None
    try:
        return Plan.of(json.loads(config.plan.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"plan={config.plan}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"plan={config.plan}: not JSON: {error}") from None


def faster_format_on_cpus(model: nn.Module) -> MemoryFormat:
    """Networks of depthwise convolutions run about 1.5 to 2.3 times faster channels-last on CPUs, those of
    full convolutions 1.6 to 1.8 times slower. Both are figures from elsewhere (docs/decisions/0005).
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    depthwise = any(c.groups > 1 and c.groups == c.in_channels for c in convolutions)
    return "channels_last" if depthwise else "contiguous"


def placement(plan: Plan, model: nn.Module) -> dict[str, Any]:
    """Who does what where, down to each parameter."""
    return {
        "clones": [{"name": "clone_0", "device": plan.clone_device, "samples": plan.batch}],
        "inputs": plan.inputs_device,
        "optimizer": plan.optimizer_device,
        "parameters": {name: plan.parameter_device for name, _ in model.named_parameters()},
    }
