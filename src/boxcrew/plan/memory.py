"""The predicted bytes of a candidate at the peak, on every device."""

from __future__ import annotations

from collections.abc import Sequence

from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device
from boxcrew.plan.candidate import Candidate, PlanInputs
from boxcrew.plan.observed import Observed
from boxcrew.plan.prediction import Memory
from boxcrew.plan.request import PlanRequest

MIB = 1 << 20
PROCESS = 900 * MIB  # libraries of a process, where they were not measured
CONTEXT = 600 * MIB  # an accelerator's own libraries
WORKER = 64 * MIB  # a loader process, without the batches that it makes ahead
CPU_OVERHEAD, MARGIN = 0.3, 0.2
"""The C library's allocator on CPUs takes this share of a step's bytes in addition, and may take more by the
margin: it took 6 to 53 % here (docs/decisions/0016)."""
LATE_LIBRARY_BYTES = 128 * MIB  # of a process: libraries and numbers that only evaluation and plots need
LEAST_OVERHEAD, MOST_OVERHEAD = 0.05, 1.5
MOST_CORRECTION = 1.5
ONE_MEASURED = {"contiguous": 1.25, "channels_last": 0.35}
"""The same share where only one number of samples was measured: convolutions copy contiguous tensors."""
OTHER_OVERHEAD = 0.1  # on accelerators; an estimate that was never measured
HALF = 0.55  # share of activations in two-byte numbers, with those that stay in four


def memory_of(candidate: Candidate, inputs: PlanInputs) -> list[Memory]:
    """Predict the memory of all devices that the candidate uses, the CPU first."""
    samples: dict[Device, list[int]] = {}  # the most that each of a device's clones computes at once
    for device, num in candidate.at_once:
        samples.setdefault(device, []).append(num)
    main = _main_memory(candidate, samples.pop(inputs.machine.devices[0], []), inputs)
    return [main, *(_on_accelerator(candidate, device, max(n), inputs) for device, n in samples.items())]


def capacity_of(device: Device, request: PlanRequest, *, taken: int = 0) -> int:
    """Return the bytes of a device that we may use, including those that are `taken` by us already."""
    size = device.memory_bytes
    if device.free_bytes is not None:
        size = min(size, device.free_bytes + taken)
    if request.deploy.memory_fraction is not None:
        size = min(size, int(device.memory_bytes * request.deploy.memory_fraction))
    return max(1, size if request.goal.num_bytes is None else min(size, request.goal.num_bytes))


def _main_memory(candidate: Candidate, samples: Sequence[int], inputs: PlanInputs) -> Memory:
    """Predict the main memory of all processes on the host, whose clones on the CPU have these `samples`."""
    cpu, workload, shards = inputs.machine.devices[0], inputs.workload, candidate.shards
    libraries = PROCESS if inputs.observed.libraries is None else inputs.observed.libraries
    processes = candidate.replicas + candidate.servers
    copies = len(samples)  # of the parameters and the optimizer's state
    if candidate.strategy not in {"ddp", "fsdp"} and (samples or candidate.offloaded):
        copies = 1 + (candidate.replicas if candidate.strategy == "parameter_server" else 0)
    activations = sum(_activations(workload, candidate, num) for num in samples)
    batches = sum(2 * workload.batch.at(share) for share in candidate.shares)
    gradients = int(copies * workload.gradients * _gradient_copies(candidate))
    state = (copies * (workload.model_bytes + workload.optimizer) + gradients) // shards
    overhead = _overhead(candidate, samples, state + activations, inputs)
    return Memory(
        device="cpu",
        libraries=libraries * processes,
        parameters=copies * workload.model_bytes // shards,
        gradients=gradients // shards,
        optimizer=copies * workload.optimizer // shards,
        activations=activations,
        inputs=batches,
        workers=_worker_bytes(candidate, workload, inputs.request),
        overhead=overhead,
        evaluation=_evaluation(candidate, cpu, inputs),
        margin=int(MARGIN * (activations + state + overhead + batches)) + LATE_LIBRARY_BYTES * processes,
        capacity=capacity_of(cpu, inputs.request, taken=libraries * processes),
    )


def _evaluation(candidate: Candidate, device: Device, inputs: PlanInputs) -> int:
    """Return the bytes that evaluations need in addition, on the device of the chief's first clone.

    Batches no larger than those of steps use memory that steps have freed. For larger ones the freed memory
    is too fragmented, so that they need new memory.
    """
    num, workload = inputs.request.eval_batch, inputs.workload
    if candidate.devices[0].name != device.name or num <= candidate.largest_micro_batches[0]:
        return 0
    return workload.evaluation_peak.at(num) + workload.batch.at(num)


def _worker_bytes(candidate: Candidate, workload: Workload, request: PlanRequest) -> int:
    """Return the bytes of loader processes and of cached images, at most those of the whole data set."""
    ahead = request.prefetch * workload.batch.at(request.batch // candidate.replicas)
    images = candidate.cache_bytes * candidate.replicas
    if workload.inputs is not None:
        images = min(images, request.num_samples * workload.inputs.image_bytes)
    return candidate.replicas * candidate.loader_workers * (WORKER + ahead) + images


def _activations(workload: Workload, candidate: Candidate, samples: int) -> int:
    """Return the bytes of activations and other temporary tensors, or of an update's, gradients excluded."""
    peak = workload.pass_of(recompute=candidate.recompute).peak.at(samples)
    scale = HALF if candidate.precision in {"bf16", "fp16"} else 1.0
    update = 0 if candidate.offloaded else workload.gradients // candidate.shards
    return max(int(scale * max(0, peak - workload.gradients)), update)


def _overhead(candidate: Candidate, samples: Sequence[int], held: int, inputs: PlanInputs) -> int:
    """Return the overhead of allocator and libraries on the CPU: measured, or a share of the `held` bytes."""
    if not samples:
        return 0
    timings = [t for t in inputs.observed.on_device("cpu", candidate.precision) if t.num_bytes is not None]
    if not timings or candidate.recompute:
        factor = _correction("cpu", candidate, inputs.observed)
        return max(0, int(held * (1 + CPU_OVERHEAD) * factor) - held)
    least, most = (inputs.workload.peak_bytes(timing.samples) for timing in (timings[0], timings[-1]))
    first, last = (timings[0].num_bytes or 0) - least, (timings[-1].num_bytes or 0) - most
    # A line through the smallest and the largest measured step, with a plausible slope.
    slope = (last - first) / (most - least) if most > least else ONE_MEASURED[candidate.memory_format]
    share = min(MOST_OVERHEAD, max(LEAST_OVERHEAD, slope))
    return max(0, len(samples) * int(last - share * most) + int(share * held))


def _gradient_copies(candidate: Candidate) -> float:
    """Return how many times a replica keeps gradients, at most. Of several clones in turn one computes its
    own while the sum of the others is kept, or each of them where they must be sent one by one; those that
    arrive are segments.
    """
    rows, is_in_turn = candidate.ordered_rows, max(map(len, candidate.turns)) > 1
    if not rows:
        return 1.0 + is_in_turn
    copies = 2 if max(rows) > 1 else 1  # rows are put in the order of who gets their segments
    return copies * max(rows) + sum(rows) / candidate.replicas + is_in_turn


def _correction(device: str, candidate: Candidate, observed: Observed) -> float:
    """Return measured / predicted bytes of earlier runs, limited: small networks have large ratios."""
    ratio = observed.ratio(device, candidate.memory_format, candidate.precision)
    return 1.0 if ratio is None else min(MOST_CORRECTION, max(1 / MOST_CORRECTION, ratio.num_bytes))


def _on_accelerator(candidate: Candidate, device: Device, samples: int, inputs: PlanInputs) -> Memory:
    """Predict the memory of one clone's accelerator. Offloaded parameters are copied there for a step."""
    workload, shards = inputs.workload, candidate.shards
    gathered = workload.largest_layer if shards > 1 else 0
    held = workload.parameters + workload.buffers if candidate.offloaded else workload.model_bytes
    activations = _activations(workload, candidate, samples)
    if candidate.precision in {"bf16", "fp16"}:
        activations += workload.parameters // 2  # cast copies, during a step
    batch = workload.batch.at(samples)
    memory = Memory(
        device=device.name,
        libraries=CONTEXT,
        parameters=held // shards + gathered,
        gradients=int(workload.gradients * _gradient_copies(candidate)) // shards,
        optimizer=0 if candidate.offloaded else workload.optimizer // shards,
        activations=activations,
        inputs=batch,
        overhead=int(OTHER_OVERHEAD * (activations + batch)),
        evaluation=_evaluation(candidate, device, inputs),
        margin=0,
        capacity=capacity_of(device, inputs.request),
    )
    factor = _correction(device.name, candidate, inputs.observed)
    overhead = max(0, memory.overhead + int((factor - 1) * memory.measurable))
    margin = int(MARGIN * (memory.measurable + overhead - memory.overhead))
    return memory.model_copy(update={"overhead": overhead, "margin": margin})
