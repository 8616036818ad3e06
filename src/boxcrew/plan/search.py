"""Choosing a plan for a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.plan import MemoryFormat, Plan, Precision

CACHE_SHARE = 8  # one part in so many of the memory may hold decoded images


class DeployConfig(Config):
    """What the user fixes; all that is `auto` the planner chooses."""

    group = "deploy"

    precision: Precision | Literal["auto"] = "auto"
    memory_format: MemoryFormat | Literal["auto"] = "auto"
    threads: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    accumulation: int = Field(default=1, ge=1)


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
    """A plan for one device. `cpu_format` is the faster memory format of the model at hand on CPUs."""
    chosen, reason = _device(machine, device)
    on_cpu = chosen.kind == "cpu"
    cores = max(1, int(machine.cores))
    # A CPU that trains has no core to spare: one worker only hides the reading behind the computing.
    workers = min(cores - 1, 1 if on_cpu else 8) if inputs.workers == "auto" else inputs.workers
    if wishes.accumulation > batch:
        raise UsageError(
            f"deploy.accumulation={wishes.accumulation}: more parts than batch={batch} has samples"
        )
    return Plan(
        clone_device=chosen.name,
        parameter_device=chosen.name,
        optimizer_device=chosen.name,
        batch=batch,
        accumulation=wishes.accumulation,
        precision=_precision(chosen) if wishes.precision == "auto" else wishes.precision,
        memory_format=_format(chosen, cpu_format) if wishes.memory_format == "auto" else wishes.memory_format,
        threads=cores if wishes.threads == "auto" else wishes.threads,
        loader_workers=workers,
        cache_bytes=_cache(machine, inputs, workers),
        reasons=(reason,),
    )


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


def _cache(machine: Machine, inputs: InputWishes, workers: int) -> int:
    """Processes that are not forked do not share memory."""
    if workers and not machine.platform.startswith("Linux"):
        return 0
    return machine.memory_bytes // CACHE_SHARE if inputs.cache == "auto" else inputs.cache


def _precision(device: Device) -> Precision:
    # bf16 needs no loss scaling, but only recent CUDA devices compute it fast; old ones have fp16.
    if device.kind != "cuda":
        return "fp32"
    return "bf16" if device.bf16 else "fp16"


def _format(device: Device, cpu_format: MemoryFormat) -> MemoryFormat:
    return cpu_format if device.kind == "cpu" else "channels_last"
