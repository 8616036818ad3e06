"""The search for a plan: a pure function of a machine, a workload and a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes, format_duration
from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.candidate import CHOICES, Candidate, candidate_of
from boxcrew.plan.cost import Costs
from boxcrew.plan.dealing import deal
from boxcrew.plan.layouts import layouts_of, shares_of
from boxcrew.plan.memory import capacity_of
from boxcrew.plan.observed import Observed
from boxcrew.plan.plan import Clone, MemoryFormat, Plan, Precision, Replica
from boxcrew.plan.reasons import most_workers, reasons_for, rejected
from boxcrew.plan.request import PlanRequest

MIN_SPEEDUP = 1.05
"""Only a candidate this much faster replaces the usual one. Noise would choose between closer ones, and two
runs with one seed would differ in their last bits.
"""
LITTLE = 0.05  # share of a step that loading may take without a worker to hide it
MAX_LOADER_SHARE = 0.7  # loader workers should be done in this share of a step: they are not always as fast


def make_plan(
    machine: Machine, workload: Workload, request: PlanRequest, observed: Observed | None = None
) -> Plan:
    """Return the best plan for the goal. If memory is short for all, the error says how much is needed."""
    costs = Costs(machine=machine, workload=workload, request=request, observed=observed or Observed())
    layouts = layouts_of(machine, request)
    candidates = [candidate for layout in layouts for candidate in _candidates(costs, layout)]
    enough = (next(filter(costs.has_enough_memory, _leaner(costs, each)), None) for each in candidates)
    feasible = [_with_workers(costs, candidate) for candidate in enough if candidate]
    tight = not feasible and request.goal.kind != "budget"
    if tight:  # the margin is for surprises: without it there may still be enough memory
        lean = [_smallest(costs, candidate) for candidate in candidates]
        feasible = [each for each in lean if all(m.peak <= m.capacity for m in costs.memory(each))]
    if not feasible:
        raise _not_enough_memory(costs, candidates)
    chosen = _choose(costs, feasible)
    reasons = [layouts[0].reason, *reasons_for(costs, chosen, feasible, candidates)]
    if tight:
        reasons.append("memory is tight: the predicted peak fits, but not with the safety margin")
    others = [*feasible, *(candidate for candidate in candidates if candidate not in feasible)]
    texts = {"reasons": tuple(reasons), "rejected": tuple(rejected(costs, chosen, others))}
    return _plan(costs, chosen).model_copy(update=texts)


def with_enough_workers(costs: Costs, plan: Plan) -> Plan:
    """Return the plan with as many loader workers as it needs, and a new prediction."""
    chosen = _with_workers(costs, candidate_of(plan, costs.machine))
    changes = {"loader_workers": chosen.loader_workers, "predicted": costs.predict(chosen)}
    return plan.model_copy(update=changes)


def _candidates(costs: Costs, layout: Candidate) -> Iterator[Candidate]:
    """Yield a candidate for every choice that a layout leaves open, the usual one first."""
    deploy, batch = costs.request.deploy, costs.request.batch
    precision = fast_precision(layout.devices) if deploy.precision == "auto" else deploy.precision
    if (deploy.precision, precision, layout.strategy) == ("auto", "fp16", "fsdp"):  # it has no fp16
        precision = "fp32"
    workers = costs.request.workers
    if workers == "auto":
        workers = usual_workers(costs.machine.cores // layout.replicas, layout.devices)
    usual = replace(layout, precision=precision, loader_workers=workers)
    also_recomputed = [False, True] if costs.workload.with_recompute else [False]
    for recompute in also_recomputed if deploy.recompute == "auto" else [deploy.recompute]:
        for memory_format, threads in _compute_modes(costs, usual):
            candidate = replace(usual, recompute=recompute, memory_format=memory_format, threads=threads)
            speeds = _speeds(costs, candidate)
            shares = shares_of(deploy, batch, speeds, least=costs.workload.min_samples)
            cache_bytes = _cache(costs, candidate) // layout.replicas
            yield replace(candidate, shares=tuple(shares), cache_bytes=cache_bytes)


def _speeds(costs: Costs, candidate: Candidate) -> list[float]:
    """Return the speed of every clone, by which it gets its share. Logical clones are equal: their shares may
    not depend on who computes them.
    """
    if costs.request.deploy.logical_clones != "auto":
        return [1.0] * len(candidate.devices)
    times = (costs.compute_time(device, candidate) for device in candidate.devices)
    return [1 / max(1e-12, time.each) for time in times]


def _compute_modes(costs: Costs, layout: Candidate) -> list[tuple[MemoryFormat, int]]:
    """Return memory formats and threads: the usual ones, and on CPUs others that were measured."""
    deploy = costs.request.deploy
    # Bits depend on the threads, and may not depend on who computes the clones of ddp.
    at_once = len(layout.devices) if layout.strategy == "ddp" else layout.replicas
    rule: MemoryFormat = "channels_last" if not layout.on_cpu or costs.workload.depthwise else "contiguous"
    usual = (
        rule if deploy.memory_format == "auto" else deploy.memory_format,
        max(1, int(costs.machine.cores) // at_once) if deploy.threads == "auto" else deploy.threads,
    )
    if not layout.on_cpu:
        return [usual]
    measured = [
        (timing.memory_format, timing.threads)
        for timing in costs.observed.timings
        if (timing.device, timing.precision) == ("cpu", layout.precision)
        and deploy.memory_format in {"auto", timing.memory_format}
        and deploy.threads in {"auto", timing.threads}
    ]
    return list(dict.fromkeys([usual, *measured]))


def _leaner(costs: Costs, candidate: Candidate) -> Iterator[Candidate]:
    """Yield the candidate with ever more micro-batches, each time at first as it is, then with less of what
    only saves time: cached images, then loader workers.
    """
    for accumulation in _accumulations(costs, candidate):
        lean = replace(candidate, accumulation=accumulation)
        yield lean
        if costs.request.cache == "auto":
            main, inputs, used = costs.memory(lean)[0], costs.workload.inputs, lean.cache_bytes
            if inputs is not None:  # no more than all images fill
                used = min(used, costs.request.num_samples * inputs.image_bytes // lean.replicas)
            lack = -(-max(0, main.needed - main.capacity) // lean.replicas)
            yield replace(lean, cache_bytes=max(0, used - lack))
            lean = replace(lean, cache_bytes=0)
            yield lean
        if costs.request.workers == "auto":
            for num in sorted({0, 1} & set(range(lean.loader_workers)), reverse=True):
                yield replace(lean, loader_workers=num)


def _accumulations(costs: Costs, candidate: Candidate) -> Iterator[int]:
    """Yield numbers of micro-batches that differ in the largest one and give every clone enough samples."""
    asked = costs.request.deploy.accumulation
    if asked != "auto":
        if asked > (batch := costs.request.batch):
            raise UsageError(f"deploy.accumulation={asked}: more than batch={batch} has samples")
        yield asked
        return
    least, last = min(costs.workload.min_samples, *candidate.shares), 0
    for num in range(1, min(candidate.shares) // least + 1):
        counts = replace(candidate, accumulation=num).split() if num > 1 else (candidate.shares,)
        most = max(map(max, counts))
        if most != last and min(map(min, counts)) >= least:
            last = most
            yield num


def _choose(costs: Costs, feasible: Sequence[Candidate]) -> Candidate:
    goal = costs.request.goal
    if goal.kind == "smallest":
        lean = [_smallest(costs, candidate) for candidate in feasible]
        return min(lean, key=lambda candidate: _smallness(costs, candidate))
    same_strategy = [candidate for candidate in feasible if candidate.strategy == feasible[0].strategy]
    fastest = min(same_strategy, key=lambda candidate: costs.step(candidate).wall)
    if costs.step(feasible[0]).wall <= MIN_SPEEDUP * costs.step(fastest).wall:
        fastest = feasible[0]
    if goal.seconds is None:
        return fastest
    lean = [_smallest(costs, candidate) for candidate in feasible]
    options = (*lean, *(_with_workers(costs, candidate) for candidate in lean), *feasible)
    in_time = [option for option in options if costs.predict(option).run.likely <= 1.001 * goal.seconds]
    if not in_time:
        best = costs.predict(fastest)
        raise UsageError(
            f"goal={goal}: the fastest plan takes about {best.run}",
            advice=f"a deadline of {format_duration(best.run.high)}, fewer epochs= or steps=, a smaller "
            "size=, or more devices",
        )
    return min(in_time, key=lambda candidate: _smallness(costs, candidate))


def _smallest(costs: Costs, candidate: Candidate) -> Candidate:
    """Return the candidate with as few samples at once as possible, and nothing that only saves time."""
    lean = candidate
    if costs.request.deploy.accumulation == "auto":
        lean = replace(lean, accumulation=list(_accumulations(costs, candidate))[-1])
    if costs.request.workers == "auto":
        lean = replace(lean, loader_workers=0)
    return replace(lean, cache_bytes=0) if costs.request.cache == "auto" else lean


def _smallness(costs: Costs, candidate: Candidate) -> tuple[int, int, float]:
    """Return the sort key: bytes on the devices that compute, then on all, then seconds."""
    predicted, names = costs.memory(candidate), {device.name for device in candidate.devices}
    computing = max(memory.needed for memory in predicted if memory.device in names)
    return computing, sum(memory.needed for memory in predicted), costs.step(candidate).wall


def _with_workers(costs: Costs, chosen: Candidate) -> Candidate:
    """Return the candidate with as few loader workers as hide their work."""
    if costs.request.workers != "auto" or costs.workload.inputs is None:
        return chosen
    options = [replace(chosen, loader_workers=num) for num in range(most_workers(costs, chosen) + 1)]
    options = [option for option in options if costs.has_enough_memory(option)] or [chosen]
    best = min(costs.step(option).wall for option in options)
    near = [option for option in options if costs.step(option).wall <= 1.01 * best]
    # Steps should not wait for samples that no worker makes ahead: disks are not always equally fast.
    steps = {option: costs.step(option) for option in near}
    near = [o for o, step in steps.items() if o.loader_workers or step.inputs <= LITTLE * step.wall] or near
    return next((o for o in near if steps[o].inputs <= MAX_LOADER_SHARE * steps[o].wall), near[0])


def usual_workers(cores: float, devices: Sequence[Device]) -> int:
    """Return the loader workers of a replica: at most one on a training CPU, which has no core to spare."""
    return min(max(1, int(cores)) - 1, 1 if all(device.kind == "cpu" for device in devices) else 8)


def _cache(costs: Costs, candidate: Candidate) -> int:
    """Return the bytes for decoded images on the whole machine. Workers share them only on Linux, by fork."""
    shared = candidate.loader_workers == 0 or costs.machine.platform.startswith("Linux")
    if not shared or (costs.workload.inputs is not None and not costs.workload.inputs.image_bytes):
        return 0
    if costs.request.cache != "auto":
        return costs.request.cache
    return capacity_of(costs.machine.devices[0], costs.request) // 8


def fast_precision(devices: Sequence[Device]) -> Precision:
    """Return the fastest precision that all devices support: clones of one model must not differ in it."""
    # bf16 needs no loss scaling, but only recent CUDA devices compute it fast; old ones have fp16.
    if any(device.kind != "cuda" for device in devices):
        return "fp32"
    return "bf16" if all(device.bf16 for device in devices) else "fp16"


def _not_enough_memory(costs: Costs, candidates: Sequence[Candidate]) -> UsageError:
    """Return the error that says what the smallest candidate needs."""

    def fullest(candidate: Candidate) -> float:
        return max(memory.needed / memory.capacity for memory in costs.memory(candidate))

    smallest = min((_smallest(costs, candidate) for candidate in candidates), key=fullest)
    short = max(costs.memory(smallest), key=lambda memory: memory.needed / memory.capacity)
    samples = counted(max(smallest.largest_micro_batches), "sample")
    goal = f"goal={costs.request.goal}: " if costs.request.goal.kind == "budget" else ""
    return UsageError(
        f"{goal}not enough memory: a micro-batch of {samples} needs {format_bytes(short.needed)} on "
        f"{short.device}, which has {format_bytes(short.capacity)}",
        advice=f"use a device with {format_bytes(short.needed)}, a smaller size=, length= or network"
        + (", evaluation.batch=1" if short.evaluation else "")
        + ("" if costs.request.deploy.accumulation == "auto" else ", or a higher deploy.accumulation="),
    )


def _plan(costs: Costs, chosen: Candidate) -> Plan:
    request, deploy = costs.request, costs.request.deploy
    pairs = zip(chosen.devices, chosen.shares, strict=True)
    clones = [Clone(device=device.name, share=share) for device, share in pairs]
    replicas = [clones[own[0] : own[-1] + 1] for own in deal(len(clones), chosen.replicas)]
    return Plan(
        goal=str(request.goal),
        replicas=tuple(Replica(clones=tuple(own)) for own in replicas),
        staleness=deploy.staleness,
        optimizer_device=chosen.parameter_device,
        batch=request.batch,
        batch_norm=deploy.batch_norm,
        pinned=chosen.on_cpu and 1 < chosen.replicas <= costs.machine.cores,
        memory_fraction=deploy.memory_fraction,
        predicted=costs.predict(chosen),
        **{name: getattr(chosen, name) for name in CHOICES},
    )
