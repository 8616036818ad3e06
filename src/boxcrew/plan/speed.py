"""Seconds of forward, backward and update: from steps that were measured, else from the speeds of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine, Speeds
from boxcrew.plan.knowledge import Knowledge, Timing
from boxcrew.plan.plan import MemoryFormat, Precision

MEASURED, KNOWN, COMPUTED, ASSUMED = 0.2, 0.3, 1.0, 2.0
"""By how much times may be off that rest on steps measured just now, on earlier runs, on the speeds of a
device, or on those of a middling one."""
SERIAL = 0.1  # of a step's work is done by one thread while others wait, where nothing is known
FASTER = {"fp32": 1.0, "tf32": 1.5, "bf16": 2.0, "fp16": 2.0}
"""Than fp32 on accelerators: rough, and only until it is measured."""
GPU = Speeds(
    gemm=15e3,
    convolution=10e3,
    convolution_channels_last=10e3,
    copy_bytes=500e9,
    from_host_bytes=10e9,
)
"""A middling one, for those whose speeds are not known."""
CORE = Speeds(gemm=60, convolution=40, convolution_channels_last=40, copy_bytes=8e9)
"""The same of a core."""
MEMORY_CORES = 8  # as many can use all of the memory's speed


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long so many samples at once take, the update not counted."""

    fixed: float  # seconds
    each: float  # seconds a sample
    spread: float  # by how much it may be off
    basis: str
    parallel: float = 1.0  # of the threads' time, the part in which they compute
    corrected: float = 1.0  # by what earlier runs showed, as an update is to be too

    def at(self, samples: float) -> float:
        return self.fixed + self.each * samples


def pace_of(
    device: Device,
    memory_format: MemoryFormat,
    precision: Precision,
    threads: int,
    *,
    machine: Machine,
    workload: Workload,
    knowledge: Knowledge,
    recompute: bool,
) -> Pace:
    """Of one clone on a device; on a CPU with so many threads."""
    slower = _recomputing(workload) if recompute else 1.0
    update = update_seconds(workload, speeds_of(device, machine)[0])
    same = knowledge.steps_on(
        device.name, memory_format, precision, threads if device.kind == "cpu" else None
    )
    if same:
        return _measured(same, slower, update)
    other = knowledge.steps_on(device.name, memory_format, precision)
    if other:  # with another number of threads
        pace = _measured(other, slower, update)
        factor = _with_threads(other[-1], threads)
        return Pace(
            fixed=pace.fixed * factor,
            each=pace.each * factor,
            spread=KNOWN,
            basis=pace.basis,
            parallel=pace.parallel,
        )
    return _computed(
        device,
        memory_format,
        precision,
        threads,
        machine=machine,
        workload=workload,
        knowledge=knowledge,
        slower=slower,
    )


def _recomputing(workload: Workload) -> float:
    return workload.pass_of(recompute=True).operations / max(1, workload.whole.operations)


def _measured(timings: Sequence[Timing], slower: float, update: float) -> Pace:
    """A line through the smallest and the largest number of samples, the update left out; through the origin
    if it would rise less than nothing.
    """
    small, large = timings[0], timings[-1]
    first, last = (max(0.1 * one.seconds, one.seconds - update) for one in (small, large))
    each, fixed = last / large.samples, 0.0
    if large.samples > small.samples:
        slope = (last - first) / (large.samples - small.samples)
        if 0 < slope < each:
            each, fixed = slope, last - slope * large.samples
    parallel = 1.0
    if large.core_seconds is not None:
        parallel = min(1.0, large.core_seconds / (large.seconds * large.threads))
    sizes = " and ".join(dict.fromkeys(str(one.samples) for one in (small, large)))
    return Pace(
        fixed=fixed * slower,
        each=each * slower,
        spread=MEASURED,
        basis=f"steps of {sizes} samples that were measured",
        parallel=parallel,
    )


def _with_threads(known: Timing, threads: int) -> float:
    """How much longer a step takes with another number of threads: what one of them does alone stays."""
    alone = SERIAL
    if known.core_seconds is not None and known.threads > 1:
        idle = known.threads - known.core_seconds / known.seconds
        alone = min(1.0, max(0.0, idle / (known.threads - 1)))
    return alone + (1 - alone) * known.threads / threads


def _computed(
    device: Device,
    memory_format: MemoryFormat,
    precision: Precision,
    threads: int,
    *,
    machine: Machine,
    workload: Workload,
    knowledge: Knowledge,
    slower: float,
) -> Pace:
    """Operations at the speed of convolutions, and what is read and written at that of memory."""
    speeds, spread, basis = speeds_of(device, machine)
    rate = speeds.convolution_channels_last if memory_format == "channels_last" else speeds.convolution
    faster = FASTER[precision] if device.kind != "cpu" else 1.0
    seconds = workload.whole.operations / (rate * faster * 1e9) + workload.whole.traffic / speeds.copy_bytes
    if device.kind == "cpu":
        cores = max(1.0, machine.cores)
        seconds *= SERIAL + (1 - SERIAL) * cores / min(threads, cores)
    residual = knowledge.residual(device.name, memory_format, precision)
    if residual is not None:
        spread, basis = KNOWN, "earlier runs on this machine"
    corrected = 1.0 if residual is None else residual.seconds
    alone = device.kind == "cpu" and threads == 1
    return Pace(
        fixed=0.0,
        each=seconds * slower * corrected,
        spread=spread,
        basis=basis,
        parallel=1.0 if alone else 1 - SERIAL,
        corrected=corrected,
    )


def speeds_of(device: Device, machine: Machine) -> tuple[Speeds, float, str]:
    """With how far off what rests on them may be, and a word for them."""
    if device.speeds is not None:
        return device.speeds, COMPUTED, "the speeds of the devices"
    if device.kind != "cpu":
        return GPU, ASSUMED, "the speeds of middling devices: those of these are not known"
    cores = max(1.0, machine.cores)
    whole = Speeds(
        gemm=CORE.gemm * cores,
        convolution=CORE.convolution * cores,
        convolution_channels_last=CORE.convolution_channels_last * cores,
        copy_bytes=CORE.copy_bytes * min(cores, MEMORY_CORES),
    )
    return whole, ASSUMED, "the speed of middling cores: that of these is not known"


def update_seconds(workload: Workload, speeds: Speeds) -> float:
    """Of the optimizer: parameter and slots are read and written, the gradient is read."""
    return (3 + 2 * workload.slots) * workload.gradients / speeds.copy_bytes
