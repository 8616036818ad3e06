"""Bytes at the peak on every device."""

from __future__ import annotations

from collections.abc import Sequence

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.candidate import Candidate
from boxcrew.plan.observed import Observed, Timing
from boxcrew.plan.prediction import Memory
from boxcrew.plan.request import PlanRequest

MIB = 1 << 20
PROCESS = 900 * MIB  # of libraries, where it is not known
CONTEXT = 600 * MIB  # that an accelerator's own libraries take
WORKER = 64 * MIB  # of a loader process, besides the batches that it makes ahead
CPU_OVERHEAD, MARGIN = 0.3, 0.2
"""What the C library's allocator takes besides on CPUs, as a share of what a step holds, and by how much it
may be more: it took 6 to 53 % here (docs/decisions/0016)."""
LATER = 128 * MIB  # of a process: libraries and numbers that only evaluation and pictures need
LEAST_OVERHEAD, MOST_OVERHEAD = 0.05, 1.5
MOST_OFF = 1.5
ONE_MEASURED = {"contiguous": 1.25, "channels_last": 0.35}
"""The same share where only one number of samples was measured: convolutions copy what is contiguous."""
OTHER_OVERHEAD = 0.1  # on accelerators: not measured, for there was none
HALF = 0.55  # of activations in two-byte numbers, with what stays in four


def memory_of(
    candidate: Candidate, machine: Machine, workload: Workload, observed: Observed, request: PlanRequest
) -> list[Memory]:
    """The CPU's first."""
    cpu = machine.devices[0]
    found = [_main_memory(candidate, machine, workload, observed, request)]
    for name in dict.fromkeys(device.name for device in candidate.devices if device.kind != cpu.kind):
        samples = [num for device, num in _samples(candidate) if device.name == name]
        device = next(one for one in candidate.devices if one.name == name)
        found.append(_on_accelerator(candidate, device, max(samples), workload, observed, request))
    return found


def _samples(candidate: Candidate) -> list[tuple[Device, int]]:
    """Of each clone, its device and how many samples it computes at once."""
    return list(zip(candidate.devices, candidate.at_once, strict=True))


def capacity_of(device: Device, request: PlanRequest, *, taken: int = 0) -> int:
    """What we may take of a device's memory; `taken` we have already."""
    size = device.memory_bytes
    if device.free_bytes is not None:
        size = min(size, device.free_bytes + taken)
    if request.deploy.memory_fraction is not None:
        size = min(size, int(device.memory_bytes * request.deploy.memory_fraction))
    return max(1, size if request.goal.num_bytes is None else min(size, request.goal.num_bytes))


def _divided(candidate: Candidate) -> int:
    return candidate.replicas if candidate.strategy == "fsdp" else 1


def _main_memory(
    candidate: Candidate, machine: Machine, workload: Workload, observed: Observed, request: PlanRequest
) -> Memory:
    """Of all processes on the host."""
    cpu = machine.devices[0]
    libraries = PROCESS if observed.libraries is None else observed.libraries
    each = candidate.replicas + candidate.servers
    inside = [num for device, num in _samples(candidate) if device.kind == "cpu"]
    holds = bool(inside) or candidate.offloaded
    copies = _copies(candidate, num_inside=len(inside)) if holds else 0
    activations = sum(_activations(workload, candidate, num) for num in inside)
    batches = sum(2 * workload.batch.at(share) for share in candidate.shares)
    state = copies * (workload.held + workload.gradients + workload.optimizer) // _divided(candidate)
    overhead = _overhead(workload, candidate, observed, state + activations, inside)
    kept = activations + state + overhead
    return Memory(
        device="cpu",
        libraries=libraries * each,
        parameters=copies * workload.held // _divided(candidate),
        gradients=copies * workload.gradients // _divided(candidate),
        optimizer=copies * workload.optimizer // _divided(candidate),
        activations=activations,
        inputs=batches,
        workers=_of_workers(candidate, workload, request),
        overhead=overhead,
        evaluation=_evaluation(candidate, cpu, workload, request),
        margin=int(MARGIN * (kept + batches)) + LATER * each,
        capacity=capacity_of(cpu, request, taken=libraries * each),
    )


def _evaluation(candidate: Candidate, device: Device, workload: Workload, request: PlanRequest) -> int:
    """What evaluations take besides, where the chief's first clone is. Of as many samples at once as steps
    have, or fewer, it is less than what steps have freed; of more, that is in pieces too small for them.
    """
    if candidate.devices[0].name != device.name or request.eval_batch <= candidate.at_once[0]:
        return 0
    return workload.evaluated.at(request.eval_batch) + workload.batch.at(request.eval_batch)


def _copies(candidate: Candidate, *, num_inside: int) -> int:
    """Of all that is learnt, in main memory: one in every replica there, or in the only one that keeps it."""
    if candidate.strategy in {"ddp", "fsdp"}:
        return num_inside
    return 1 + (candidate.replicas if candidate.strategy == "parameter_server" else 0)


def _of_workers(candidate: Candidate, workload: Workload, request: PlanRequest) -> int:
    """Of loader processes and the decoded images that they keep: no more than the set has."""
    ahead = request.prefetch * workload.batch.at(request.batch // candidate.replicas)
    images = candidate.cache * candidate.replicas
    if workload.inputs is not None:
        images = min(images, request.num_samples * workload.inputs.image_bytes)
    return candidate.replicas * candidate.workers * (WORKER + ahead) + images


def _activations(workload: Workload, candidate: Candidate, samples: int) -> int:
    """With all else that a step makes for a while, gradients left out. An update that is made there makes as
    much as they are again.
    """
    peak = workload.pass_of(recompute=candidate.recompute).peak.at(samples)
    scale = HALF if candidate.precision in {"bf16", "fp16"} else 1.0
    update = 0 if candidate.offloaded else workload.gradients // _divided(candidate)
    return max(int(scale * max(0, peak - workload.gradients)), update)


def _overhead(
    workload: Workload, candidate: Candidate, observed: Observed, held: int, inside: Sequence[int]
) -> int:
    """Of the allocator and of libraries on the CPU: as measured, else a share of what is held."""
    if not inside:
        return 0
    timings = [one for one in observed.on_device("cpu", candidate.precision) if one.num_bytes is not None]
    if not timings or candidate.recompute:
        factor = _corrected("cpu", candidate, observed)
        return max(0, int(held * (1 + CPU_OVERHEAD) * factor) - held)
    fixed, share = _fitted(timings, workload, ONE_MEASURED[candidate.memory_format])
    return max(0, len(inside) * fixed + int(share * held))


def _corrected(device: str, candidate: Candidate, observed: Observed) -> float:
    """By how much earlier predictions were too low. What a small network was off by is mostly not its own."""
    ratio = observed.ratio(device, candidate.memory_format, candidate.precision)
    return 1.0 if ratio is None else min(MOST_OFF, max(1 / MOST_OFF, ratio.num_bytes))


def _fitted(timings: Sequence[Timing], workload: Workload, usual: float) -> tuple[int, float]:
    """Bytes besides, and the share of what is held that comes on top: a line through the smallest and the
    largest step that was measured, within what is plausible; of the `usual` slope through a single one.
    """
    held = [workload.peak_bytes(one.samples) for one in timings]
    besides = [(one.num_bytes or 0) - bytes_held for one, bytes_held in zip(timings, held, strict=True)]
    share = usual
    if held[-1] > held[0]:
        share = (besides[-1] - besides[0]) / (held[-1] - held[0])
    share = min(MOST_OVERHEAD, max(LEAST_OVERHEAD, share))
    return int(besides[-1] - share * held[-1]), share


def _on_accelerator(
    candidate: Candidate,
    device: Device,
    samples: int,
    workload: Workload,
    observed: Observed,
    request: PlanRequest,
) -> Memory:
    """Of one clone there. Where the parameters live elsewhere it has a copy of them, and no optimizer."""
    parts = _divided(candidate)
    gathered = workload.largest_layer if parts > 1 else 0
    own = workload.parameters + workload.buffers if candidate.offloaded else workload.held
    activations = _activations(workload, candidate, samples)
    if candidate.precision in {"bf16", "fp16"}:
        activations += workload.parameters // 2  # cast for as long as a step takes
    inputs = workload.batch.at(samples)
    memory = Memory(
        device=device.name,
        libraries=CONTEXT,
        parameters=own // parts + gathered,
        gradients=workload.gradients // parts,
        optimizer=0 if candidate.offloaded else workload.optimizer // parts,
        activations=activations,
        inputs=inputs,
        overhead=int(OTHER_OVERHEAD * (activations + inputs)),
        evaluation=_evaluation(candidate, device, workload, request),
        margin=0,
        capacity=capacity_of(device, request),
    )
    factor = _corrected(device.name, candidate, observed)
    overhead = max(0, memory.overhead + int((factor - 1) * memory.measurable))
    margin = int(MARGIN * (memory.measurable + overhead - memory.overhead))
    return memory.model_copy(update={"overhead": overhead, "margin": margin})
