"""Seconds of forward, backward and update: from steps that were measured, else from the speeds of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine, Speeds
from boxcrew.plan.observed import Observed, Timing
from boxcrew.plan.plan import MemoryFormat, Precision

MEASURED, KNOWN, COMPUTED, ASSUMED = 0.2, 0.3, 1.0, 2.0
"""By how much times may be off that rest on steps measured just now, on earlier runs, on the speeds of a
device, or on those of a middling one."""
BESIDE = 1.04  # steps of a run take so much longer than those that were tried: batches come from elsewhere
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


@dataclass(frozen=True, kw_only=True)
class ComputeMode:
    """To compute on one device."""

    device: Device
    memory_format: MemoryFormat
    precision: Precision
    threads: int  # on a CPU
    recompute: bool


@dataclass(frozen=True, kw_only=True)
class Paces:
    """Of one task on one machine."""

    machine: Machine
    workload: Workload
    observed: Observed

    def of(self, way: ComputeMode) -> Pace:
        """As measured; else as measured with another number of threads; else by the speeds of the device."""
        name, on_cpu = way.device.name, way.device.kind == "cpu"
        same = self.observed.steps_on(name, way.memory_format, way.precision, way.threads if on_cpu else None)
        if same:
            return self._measured(same, way)
        other = self.observed.steps_on(name, way.memory_format, way.precision)
        if not other:
            return self._computed(way)
        pace, factor = self._measured(other, way), _with_threads(other[-1], way.threads)
        return replace(pace, fixed=pace.fixed * factor, each=pace.each * factor, spread=KNOWN)

    def _slower(self, way: ComputeMode) -> float:
        if not way.recompute:
            return 1.0
        return self.workload.pass_of(recompute=True).operations / max(1, self.workload.whole.operations)

    def _measured(self, timings: Sequence[Timing], way: ComputeMode) -> Pace:
        """A line through the smallest and the largest number of samples, the update left out; through the
        origin if it would rise less than nothing.
        """
        small, large = timings[0], timings[-1]
        slower = self._slower(way) * (BESIDE if large.alone else 1.0)
        update = update_seconds(self.workload, speeds_of(way.device, self.machine)[0])
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

    def _computed(self, way: ComputeMode) -> Pace:
        """Operations at the speed of convolutions, and what is read and written at that of memory."""
        speeds, spread, basis = speeds_of(way.device, self.machine)
        last = way.memory_format == "channels_last"
        rate = speeds.convolution_channels_last if last else speeds.convolution
        whole, on_cpu = self.workload.whole, way.device.kind == "cpu"
        faster = 1.0 if on_cpu else FASTER[way.precision]
        seconds = whole.operations / (rate * faster * 1e9) + whole.traffic / speeds.copy_bytes
        if on_cpu:
            cores = max(1.0, self.machine.cores)
            seconds *= SERIAL + (1 - SERIAL) * cores / min(way.threads, cores)
        ratio = self.observed.ratio(way.device.name, way.memory_format, way.precision)
        if ratio is not None:
            spread, basis = KNOWN, "earlier runs on this machine"
        corrected = 1.0 if ratio is None else ratio.seconds
        return Pace(
            fixed=0.0,
            each=seconds * self._slower(way) * corrected,
            spread=spread,
            basis=basis,
            parallel=1.0 if on_cpu and way.threads == 1 else 1 - SERIAL,
            corrected=corrected,
        )


def _with_threads(known: Timing, threads: int) -> float:
    """How much longer a step takes with another number of threads: what one of them does alone stays."""
    alone = SERIAL
    if known.core_seconds is not None and known.threads > 1:
        idle = known.threads - known.core_seconds / known.seconds
        alone = min(1.0, max(0.0, idle / (known.threads - 1)))
    return alone + (1 - alone) * known.threads / threads


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
