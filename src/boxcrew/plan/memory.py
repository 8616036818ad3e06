"""The predicted bytes of a candidate at the peak, on every device."""

from __future__ import annotations

from collections.abc import Sequence

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.candidate import Candidate
from boxcrew.plan.observed import Observed, Timing
from boxcrew.plan.prediction import Memory
from boxcrew.plan.request import PlanRequest

MIB = 1 << 20
PROCESS = 900 * MIB  # libraries of a process, where they were not measured
CONTEXT = 600 * MIB  # an accelerator's own libraries
WORKER = 64 * MIB  # a loader process, without the batches that it makes ahead
CPU_OVERHEAD, MARGIN = 0.3, 0.2
"""The C library's allocator on CPUs takes this share of a step's bytes in addition, and may take more by the
margin: it took 6 to 53 % here (docs/decisions/0016)."""
LATER = 128 * MIB  # of a process: libraries and numbers that only evaluation and plots need
LEAST_OVERHEAD, MOST_OVERHEAD = 0.05, 1.5
MOST_CORRECTION = 1.5
ONE_MEASURED = {"contiguous": 1.25, "channels_last": 0.35}
"""The same share where only one number of samples was measured: convolutions copy contiguous tensors."""
OTHER_OVERHEAD = 0.1  # on accelerators; an estimate that was never measured
HALF = 0.55  # share of activations in two-byte numbers, with those that stay in four


def memory_of(
    candidate: Candidate, machine: Machine, workload: Workload, observed: Observed, request: PlanRequest
) -> list[Memory]:
    """Predict the memory of all devices that the candidate uses, the CPU first."""
    cpu = machine.devices[0]
    predicted = [_main_memory(candidate, machine, workload, observed, request)]
    for name in dict.fromkeys(device.name for device in candidate.devices if device.kind != cpu.kind):
        samples = [num for device, num in _micro_batches(candidate) if device.name == name]
        device = next(device for device in candidate.devices if device.name == name)
        predicted.append(_on_accelerator(candidate, device, max(samples), workload, observed, request))
    return predicted


def _micro_batches(candidate: Candidate) -> list[tuple[Device, int]]:
    """Return each clone's device, and the most samples that it computes at once."""
    return list(zip(candidate.devices, candidate.largest_micro_batches, strict=True))


def capacity_of(device: Device, request: PlanRequest, *, taken: int = 0) -> int:
    """Return the bytes of a device that we may use, including those that are `taken` by us already."""
    size = device.memory_bytes
    if device.free_bytes is not None:
        size = min(size, device.free_bytes + taken)
    if request.deploy.memory_fraction is not None:
        size = min(size, int(device.memory_bytes * request.deploy.memory_fraction))
    return max(1, size if request.goal.num_bytes is None else min(size, request.goal.num_bytes))


def _num_shards(candidate: Candidate) -> int:
    return candidate.replicas if candidate.strategy == "fsdp" else 1


def _main_memory(
    candidate: Candidate, machine: Machine, workload: Workload, observed: Observed, request: PlanRequest
) -> Memory:
    """Predict the main memory of all processes on the host."""
    cpu = machine.devices[0]
    libraries = PROCESS if observed.libraries is None else observed.libraries
    processes = candidate.replicas + candidate.servers
    samples = [num for device, num in _micro_batches(candidate) if device.kind == "cpu"]
    copies = _copies(candidate, num_on_cpu=len(samples)) if samples or candidate.offloaded else 0
    activations = sum(_activations(workload, candidate, num) for num in samples)
    batches = sum(2 * workload.batch.at(share) for share in candidate.shares)
    shards = _num_shards(candidate)
    state = copies * (workload.held + workload.gradients + workload.optimizer) // shards
    overhead = _overhead(workload, candidate, observed, state + activations, samples)
    return Memory(
        device="cpu",
        libraries=libraries * processes,
        parameters=copies * workload.held // shards,
        gradients=copies * workload.gradients // shards,
        optimizer=copies * workload.optimizer // shards,
        activations=activations,
        inputs=batches,
        workers=_worker_bytes(candidate, workload, request),
        overhead=overhead,
        evaluation=_evaluation(candidate, cpu, workload, request),
        margin=int(MARGIN * (activations + state + overhead + batches)) + LATER * processes,
        capacity=capacity_of(cpu, request, taken=libraries * processes),
    )


def _evaluation(candidate: Candidate, device: Device, workload: Workload, request: PlanRequest) -> int:
    """Return the bytes that evaluations need in addition, on the device of the chief's first clone.

    Batches no larger than those of steps use memory that steps have freed. For larger ones the freed memory
    is too fragmented, so that they need new memory.
    """
    if candidate.devices[0].name != device.name or request.eval_batch <= candidate.largest_micro_batches[0]:
        return 0
    return workload.evaluated.at(request.eval_batch) + workload.batch.at(request.eval_batch)


def _copies(candidate: Candidate, *, num_on_cpu: int) -> int:
    """Return how many copies of parameters and optimizer state are in main memory."""
    if candidate.strategy in {"ddp", "fsdp"}:
        return num_on_cpu
    return 1 + (candidate.replicas if candidate.strategy == "parameter_server" else 0)


def _worker_bytes(candidate: Candidate, workload: Workload, request: PlanRequest) -> int:
    """Return the bytes of loader processes and of cached images, at most those of the whole data set."""
    ahead = request.prefetch * workload.batch.at(request.batch // candidate.replicas)
    images = candidate.cache * candidate.replicas
    if workload.inputs is not None:
        images = min(images, request.num_samples * workload.inputs.image_bytes)
    return candidate.replicas * candidate.workers * (WORKER + ahead) + images


def _activations(workload: Workload, candidate: Candidate, samples: int) -> int:
    """Return the bytes of activations and other temporary tensors, gradients excluded.

    An update on the same device needs temporary tensors as large as the gradients.
    """
    peak = workload.pass_of(recompute=candidate.recompute).peak.at(samples)
    scale = HALF if candidate.precision in {"bf16", "fp16"} else 1.0
    update = 0 if candidate.offloaded else workload.gradients // _num_shards(candidate)
    return max(int(scale * max(0, peak - workload.gradients)), update)


def _overhead(
    workload: Workload, candidate: Candidate, observed: Observed, held: int, samples: Sequence[int]
) -> int:
    """Return the overhead of allocator and libraries on the CPU: measured, or a share of the `held` bytes."""
    if not samples:
        return 0
    timings = [each for each in observed.on_device("cpu", candidate.precision) if each.num_bytes is not None]
    if not timings or candidate.recompute:
        factor = _correction("cpu", candidate, observed)
        return max(0, int(held * (1 + CPU_OVERHEAD) * factor) - held)
    fixed, share = _overhead_line(timings, workload, ONE_MEASURED[candidate.memory_format])
    return max(0, len(samples) * fixed + int(share * held))


def _correction(device: str, candidate: Candidate, observed: Observed) -> float:
    """Return measured / predicted bytes of earlier runs, limited: small networks have large ratios."""
    ratio = observed.ratio(device, candidate.memory_format, candidate.precision)
    return 1.0 if ratio is None else min(MOST_CORRECTION, max(1 / MOST_CORRECTION, ratio.num_bytes))


def _overhead_line(timings: Sequence[Timing], workload: Workload, usual: float) -> tuple[int, float]:
    """Return fixed bytes, and the share of the held bytes to add.

    The line goes through the smallest and the largest measured step, with a plausible slope; through a
    single step it has the `usual` slope.
    """
    held = [workload.peak_bytes(timing.samples) for timing in timings]
    extra = [(timing.num_bytes or 0) - num_held for timing, num_held in zip(timings, held, strict=True)]
    share = usual
    if held[-1] > held[0]:
        share = (extra[-1] - extra[0]) / (held[-1] - held[0])
    share = min(MOST_OVERHEAD, max(LEAST_OVERHEAD, share))
    return int(extra[-1] - share * held[-1]), share


def _on_accelerator(
    candidate: Candidate,
    device: Device,
    samples: int,
    workload: Workload,
    observed: Observed,
    request: PlanRequest,
) -> Memory:
    """Predict the memory of one clone's accelerator. Offloaded parameters are copied there for a step."""
    shards = _num_shards(candidate)
    gathered = workload.largest_layer if shards > 1 else 0
    held = workload.parameters + workload.buffers if candidate.offloaded else workload.held
    activations = _activations(workload, candidate, samples)
    if candidate.precision in {"bf16", "fp16"}:
        activations += workload.parameters // 2  # cast copies, during a step
    inputs = workload.batch.at(samples)
    memory = Memory(
        device=device.name,
        libraries=CONTEXT,
        parameters=held // shards + gathered,
        gradients=workload.gradients // shards,
        optimizer=0 if candidate.offloaded else workload.optimizer // shards,
        activations=activations,
        inputs=inputs,
        overhead=int(OTHER_OVERHEAD * (activations + inputs)),
        evaluation=_evaluation(candidate, device, workload, request),
        margin=0,
        capacity=capacity_of(device, request),
    )
    factor = _correction(device.name, candidate, observed)
    overhead = max(0, memory.overhead + int((factor - 1) * memory.measurable))
    margin = int(MARGIN * (memory.measurable + overhead - memory.overhead))
    return memory.model_copy(update={"overhead": overhead, "margin": margin})
