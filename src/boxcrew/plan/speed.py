"""Seconds of forward, backward and update: from measured steps, or else from the speeds of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine, Speeds
from boxcrew.plan.candidate import Candidate, PlanInputs
from boxcrew.plan.memory import HALF
from boxcrew.plan.observed import Timing
from boxcrew.plan.plan import MemoryFormat

MEASURED, KNOWN, TABLED, COMPUTED, ASSUMED = 0.2, 0.3, 0.5, 1.0, 2.0
"""By how much times may be off: from steps measured just now, from earlier runs, from the data sheet of a
GPU, from the speeds of a device, or from typical speeds."""
RUN_SLOWDOWN = 1.04  # steps of a run take so much longer than trial steps, which always see the same batch
SERIAL_FRACTION = 0.1  # share of a step's work that one thread does while others wait, if not measured
PRECISION_SPEEDUP = {"fp32": 1.0, "tf32": 1.5, "bf16": 2.0, "fp16": 2.0}
"""Speed relative to fp32 on accelerators whose speed with numbers of two bytes is not known."""
HALF_SPEED: dict[MemoryFormat, float] = {"contiguous": 0.97, "channels_last": 1.19}
"""Share of a GPU's speed with numbers of two bytes that networks reach. Data sheets of some cards say half of
what they can do, hence more than one. Fitted to every other row of a published table (`bench/gpu_tables.py`).
"""
TRAFFIC_SPEED: dict[MemoryFormat, float] = {"contiguous": 0.57, "channels_last": 0.73}
"""Share of such a GPU's speed of copying that a network's reading and writing reaches, fitted likewise."""
GPU_STEP = 0.01  # seconds of a step on a GPU, however small: its operators are started one by one
GPU = Speeds(gemm=15e3, convolution=1e4, convolution_channels_last=1e4, copy_bytes=5e11, from_host_bytes=1e10)
CORE = {"gemm": 60, "convolution": 40, "convolution_channels_last": 40}
"""Speeds of a typical accelerator, and of a typical CPU core."""


@dataclass(frozen=True, kw_only=True)
class ComputeTime:
    """Seconds of forward and backward as a line over the number of samples at once."""

    fixed: float  # seconds
    each: float  # seconds per sample
    spread: float  # by how much it may be off
    basis: str
    parallel: float = 1.0  # share of the threads' time in which they compute
    corrected: float = 1.0  # factor from earlier runs, to be applied to the update too

    def at(self, samples: float) -> float:
        return self.fixed + self.each * samples


def compute_time_of(device: Device, candidate: Candidate, inputs: PlanInputs) -> ComputeTime:
    """Return the compute time as measured, or scaled from other numbers of threads, or from device speeds."""
    timings = inputs.observed.on_device(device.name, candidate.precision)
    timings = [timing for timing in timings if timing.memory_format == candidate.memory_format]
    if not timings:
        return _computed(device, candidate, inputs)
    if same := [each for each in timings if device.kind != "cpu" or each.threads == candidate.threads]:
        return _measured(same, device, candidate, inputs)
    measured = _measured(timings, device, candidate, inputs)
    factor = _thread_factor(timings[-1], candidate.threads)
    return replace(measured, fixed=measured.fixed * factor, each=measured.each * factor, spread=KNOWN)


def _recompute_factor(candidate: Candidate, workload: Workload) -> float:
    step = workload.pass_of(recompute=candidate.recompute)
    return step.operations / max(1, workload.without_recompute.operations) if candidate.recompute else 1.0


def _measured(
    timings: Sequence[Timing], device: Device, candidate: Candidate, inputs: PlanInputs
) -> ComputeTime:
    """Return the line through the fewest and the most samples, or through the origin if it is implausible."""
    small, large = timings[0], timings[-1]
    factor = _recompute_factor(candidate, inputs.workload) * (RUN_SLOWDOWN if large.alone else 1.0)
    update = update_seconds(inputs.workload, speeds_of(device, inputs.machine)[0])
    first, last = (max(0.1 * step.seconds, step.seconds - update) for step in (small, large))
    each, fixed = last / large.samples, 0.0
    if large.samples > small.samples:
        slope = (last - first) / (large.samples - small.samples)
        if 0 < slope < each:
            each, fixed = slope, last - slope * large.samples
    parallel = 1.0
    if large.core_seconds is not None:
        parallel = min(1.0, large.core_seconds / (large.seconds * large.threads))
    sizes = " and ".join(dict.fromkeys(str(timing.samples) for timing in (small, large)))
    basis = f"measured steps of {sizes} samples"
    return ComputeTime(
        fixed=fixed * factor, each=each * factor, spread=MEASURED, basis=basis, parallel=parallel
    )


def _computed(device: Device, candidate: Candidate, inputs: PlanInputs) -> ComputeTime:
    """Return the compute time from operations at the speed of convolutions, and traffic at that of memory."""
    speeds, spread, basis = speeds_of(device, inputs.machine)
    whole, on_cpu = inputs.workload.without_recompute, device.kind == "cpu"
    seconds = whole.operations / _operations(speeds, candidate) + whole.traffic / _traffic(speeds, candidate)
    if on_cpu:
        cores = max(1.0, inputs.machine.cores)
        seconds *= SERIAL_FRACTION + (1 - SERIAL_FRACTION) * cores / min(candidate.threads, cores)
    ratio = inputs.observed.ratio(device.name, candidate.memory_format, candidate.precision)
    corrected = 1.0 if ratio is None else ratio.seconds
    if ratio is not None:
        spread, basis = KNOWN, "earlier runs on this machine"
    each = seconds * _recompute_factor(candidate, inputs.workload) * corrected
    parallel = 1.0 if on_cpu and candidate.threads == 1 else 1 - SERIAL_FRACTION
    fixed = GPU_STEP * corrected if spread == TABLED else 0.0
    return ComputeTime(
        fixed=fixed, each=each, spread=spread, basis=basis, parallel=parallel, corrected=corrected
    )


def _operations(speeds: Speeds, candidate: Candidate) -> float:
    """Return the operations a second of a network's convolutions and matrix products."""
    last = candidate.memory_format == "channels_last"
    single = (speeds.convolution_channels_last if last else speeds.convolution) * 1e9
    if candidate.on_cpu or candidate.precision == "fp32":
        return single
    if speeds.half is None:
        return single * PRECISION_SPEEDUP[candidate.precision]
    half = speeds.half * HALF_SPEED[candidate.memory_format] * 1e9
    return half / 2 if candidate.precision == "tf32" else half


def _traffic(speeds: Speeds, candidate: Candidate) -> float:
    """Return the bytes a second of a network's operators, counted as if all numbers had four bytes."""
    if speeds.half is None:
        return speeds.copy_bytes
    reached = speeds.copy_bytes * TRAFFIC_SPEED[candidate.memory_format]
    return reached / HALF if candidate.precision in {"bf16", "fp16"} else reached


def _thread_factor(timing: Timing, threads: int) -> float:
    """Return how much longer a measured step takes with other `threads`: its serial share stays as it is."""
    serial = SERIAL_FRACTION
    if timing.core_seconds is not None and timing.threads > 1:
        idle = timing.threads - timing.core_seconds / timing.seconds
        serial = min(1.0, max(0.0, idle / (timing.threads - 1)))
    return serial + (1 - serial) * timing.threads / threads


def speeds_of(device: Device, machine: Machine) -> tuple[Speeds, float, str]:
    """Return the speeds of a device or typical ones, how far off they may be, and their name."""
    if device.speeds is not None and device.speeds.half is not None:
        return device.speeds, TABLED, "the data sheets of the devices"
    if device.speeds is not None:
        return device.speeds, COMPUTED, "the speeds of the devices"
    if device.kind != "cpu":
        return GPU, ASSUMED, "the speeds of typical accelerators (these were not measured)"
    cores = max(1.0, machine.cores)
    computing = {name: speed * cores for name, speed in CORE.items()}
    speeds = Speeds(**computing, copy_bytes=8e9 * min(cores, 8))  # 8 cores use all of the memory's bandwidth
    return speeds, ASSUMED, "the speed of typical CPU cores (these were not measured)"


def update_seconds(workload: Workload, speeds: Speeds) -> float:
    """Return the seconds of an update: it reads gradients, and reads and writes parameters and slots."""
    return (3 + 2 * workload.slots) * workload.gradients / speeds.copy_bytes
