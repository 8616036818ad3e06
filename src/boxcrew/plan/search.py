"""Choosing a plan: a pure function of a machine, a workload and what is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes, format_duration
from boxcrew.core.workload import Workload
from boxcrew.hardware.machine import Device, Machine
from boxcrew.plan.candidate import Candidate, candidate_of
from boxcrew.plan.cost import Costs
from boxcrew.plan.layouts import Layout, layouts_of
from boxcrew.plan.memory import capacity_of
from boxcrew.plan.observed import Observed
from boxcrew.plan.plan import Clone, MemoryFormat, Plan, Precision, Replica
from boxcrew.plan.reasons import most_workers, reasons_for, rejected
from boxcrew.plan.request import PlanRequest
from boxcrew.plan.shares import shares_of

CACHE_SHARE = 8  # one part in so many of the memory may hold decoded images
CLEARLY = 1.05
"""Only a way this much faster replaces the usual one. Of close ones the machine's mood would choose, and two
runs of one seed would differ in their last bits.
"""
NEGLIGIBLE = 0.05  # part of a step that reading may take without a worker to hide it
EASILY = 0.7  # loader workers should be done in this part of a step: they are not always as fast


def make_plan(
    machine: Machine, workload: Workload, request: PlanRequest, observed: Observed | None = None
) -> Plan:
    """The best for the goal. An error says what would fit where nothing does."""
    costs = Costs(machine=machine, workload=workload, request=request, observed=observed or Observed())
    layouts = layouts_of(machine, request)
    ways = [way for layout in layouts for way in _ways(costs, layout)]
    fitting = [_with_workers(costs, one) for way in ways if (one := _fitted(costs, way)) is not None]
    tight = not fitting and request.goal.kind != "budget"
    if tight:  # the margin is there for surprises; without it there may still be room
        lean = [_smallest(costs, way) for way in ways]
        fitting = [one for one in lean if all(m.peak <= m.capacity for m in costs.memory(one))]
    if not fitting:
        raise _too_large(costs, ways)
    chosen = _choose(costs, fitting)
    reasons = [layouts[0].reason, *reasons_for(costs, chosen, fitting, ways)]
    if tight:
        reasons.append("memory is tight: there is less room than predictions may be off by")
    others = [*fitting, *(way for way in ways if way not in fitting)]
    told = {"reasons": tuple(reasons), "rejected": tuple(rejected(costs, chosen, others))}
    return _plan(costs, chosen).model_copy(update=told)


def with_enough_workers(costs: Costs, plan: Plan) -> Plan:
    """The same with as many loader workers as it needs, and what it is expected to take by what is known."""
    chosen = _with_workers(costs, candidate_of(plan, costs.machine))
    return plan.model_copy(update={"loader_workers": chosen.workers, "predicted": costs.predict(chosen)})


def _ways(costs: Costs, layout: Layout) -> Iterator[Candidate]:
    """All that a layout leaves open, the usual first."""
    request, num = costs.request, layout.replicas
    precision = request.deploy.precision
    if precision == "auto":
        precision = fast_precision(layout.devices)
        if precision == "fp16" and layout.strategy == "fsdp":  # which has none
            precision = "fp32"
    for recompute in _recomputing(costs):
        for memory_format, threads in _computing(costs, layout, precision):
            way = Candidate(
                strategy=layout.strategy,
                devices=layout.devices,
                shares=(1,) * len(layout.devices),
                replicas=num,
                servers=layout.servers,
                keeper=layout.keeper,
                recompute=recompute,
                precision=precision,
                memory_format=memory_format,
                threads=threads,
                workers=_usual_workers(costs, layout),
            )
            speeds = [1 / max(1e-12, costs.pace(one, way).each) for one in way.devices]
            least = costs.workload.least_samples
            shares = shares_of(request.deploy, request.batch, len(layout.devices), speeds, least=least)
            yield replace(way, shares=tuple(shares), cache=_cache(costs, way) // num)


def _recomputing(costs: Costs) -> list[bool]:
    """Whether to, as far as it was looked at."""
    asked = costs.request.deploy.recompute
    if asked != "auto":
        return [asked]
    return [False, True] if costs.workload.recomputed else [False]


def _computing(costs: Costs, layout: Layout, precision: Precision) -> list[tuple[MemoryFormat, int]]:
    """Memory formats and threads: on CPUs those of the rule, and others that were measured."""
    deploy = costs.request.deploy
    on_cpu = all(device.kind == "cpu" for device in layout.devices)
    rule: MemoryFormat = "channels_last" if not on_cpu or costs.workload.depthwise else "contiguous"
    usual = (
        rule if deploy.memory_format == "auto" else deploy.memory_format,
        max(1, int(costs.machine.cores) // layout.replicas) if deploy.threads == "auto" else deploy.threads,
    )
    if not on_cpu:
        return [usual]
    measured = [
        (one.memory_format, one.threads)
        for one in costs.observed.timings
        if (one.device, one.precision) == ("cpu", precision)
        and deploy.memory_format in {"auto", one.memory_format}
        and deploy.threads in {"auto", one.threads}
    ]
    return list(dict.fromkeys([usual, *measured]))


def _fitted(costs: Costs, way: Candidate) -> Candidate | None:
    """In as few parts as fit into memory; None if none do. What only saves time is given up first."""
    for parts in _parts(costs, way):
        for candidate in _leaner(costs, replace(way, parts=parts)):
            if costs.fits(candidate):
                return candidate
    return None


def _leaner(costs: Costs, candidate: Candidate) -> Iterator[Candidate]:
    """As it is; with fewer decoded images kept; with fewer loader workers."""
    yield candidate
    if costs.request.cache == "auto":
        main = costs.memory(candidate)[0]
        lack = -(-max(0, main.needed - main.capacity) // candidate.replicas)
        yield replace(candidate, cache=max(0, _used_cache(costs, candidate) - lack))
        candidate = replace(candidate, cache=0)
        yield candidate
    if costs.request.workers == "auto":
        for workers in sorted({0, 1} & set(range(candidate.workers)), reverse=True):
            yield replace(candidate, workers=workers)


def _used_cache(costs: Costs, candidate: Candidate) -> int:
    """Of a replica: no more than the images of the set."""
    inputs = costs.workload.inputs
    if inputs is None:
        return candidate.cache
    return min(candidate.cache, costs.request.num_samples * inputs.image_bytes // candidate.replicas)


def _parts(costs: Costs, way: Candidate) -> Iterator[int]:
    """Those that make a difference, and leave every clone as many samples as it can compute."""
    asked = costs.request.deploy.accumulation
    if asked != "auto":
        if asked > costs.request.batch:
            raise UsageError(
                f"deploy.accumulation={asked}: more parts than batch={costs.request.batch} has samples"
            )
        yield asked
        return
    least = min(costs.workload.least_samples, *way.shares)
    last = 0
    for parts in range(1, min(way.shares) // least + 1):
        dealt = replace(way, parts=parts).dealt() if parts > 1 else (way.shares,)
        most = max(map(max, dealt))
        if most != last and min(map(min, dealt)) >= least:
            last = most
            yield parts


def _choose(costs: Costs, fitting: Sequence[Candidate]) -> Candidate:
    goal = costs.request.goal
    if goal.kind == "smallest":
        return min((_smallest(costs, one) for one in fitting), key=lambda one: _smallness(costs, one))
    fastest = _clearly_fastest(costs, [one for one in fitting if one.strategy == fitting[0].strategy])
    if goal.seconds is None:
        return fastest
    lean = [_smallest(costs, one) for one in fitting]
    faster = [_with_workers(costs, one) for one in lean]
    in_time = [
        one for one in (*lean, *faster, *fitting) if costs.predict(one).run.likely <= 1.001 * goal.seconds
    ]
    if not in_time:
        best = costs.predict(fastest)
        raise UsageError(
            f"goal={goal}: the fastest plan takes about {best.run}",
            advice=f"a deadline of {format_duration(best.run.high)}, fewer epochs= or steps=, a smaller "
            "size=, or more devices",
        )
    return min(in_time, key=lambda one: _smallness(costs, one))


def _clearly_fastest(costs: Costs, fitting: Sequence[Candidate]) -> Candidate:
    """The first, or one that is clearly faster."""
    best = min(fitting, key=lambda one: costs.step(one).wall)
    usual = fitting[0]
    return usual if costs.step(usual).wall <= CLEARLY * costs.step(best).wall else best


def _smallest(costs: Costs, candidate: Candidate) -> Candidate:
    """The same with as few samples at once as can be, and nothing that only saves time."""
    lean = candidate
    if costs.request.deploy.accumulation == "auto":
        lean = replace(lean, parts=list(_parts(costs, candidate))[-1])
    if costs.request.workers == "auto":
        lean = replace(lean, workers=0)
    return replace(lean, cache=0) if costs.request.cache == "auto" else lean


def _smallness(costs: Costs, candidate: Candidate) -> tuple[int, int, float]:
    """Bytes on the devices that compute, then on all, then seconds."""
    memory, names = costs.memory(candidate), {device.name for device in candidate.devices}
    computing = max(one.needed for one in memory if one.device in names)
    return computing, sum(one.needed for one in memory), costs.step(candidate).wall


def _with_workers(costs: Costs, chosen: Candidate) -> Candidate:
    """As few loader workers as hide their work."""
    if costs.request.workers != "auto" or costs.workload.inputs is None:
        return chosen
    options = [replace(chosen, workers=num) for num in range(most_workers(costs, chosen) + 1)]
    options = [one for one in options if costs.fits(one)] or [chosen]
    best = min(costs.step(one).wall for one in options)
    near = [one for one in options if costs.step(one).wall <= 1.01 * best]
    near = [one for one in near if not _waits(costs, one)] or near
    easy = [one for one in near if costs.step(one).inputs <= EASILY * costs.step(one).wall]
    return (easy or near)[0]


def _waits(costs: Costs, candidate: Candidate) -> bool:
    """Whether steps wait for samples that nobody makes ahead: the disk is not always as quick as it was."""
    step = costs.step(candidate)
    return candidate.workers == 0 and step.inputs > NEGLIGIBLE * step.wall


def _usual_workers(costs: Costs, layout: Layout) -> int:
    if costs.request.workers != "auto":
        return costs.request.workers
    return usual_workers(costs.machine.cores // layout.replicas, layout.devices)


def usual_workers(cores: float, devices: Sequence[Device]) -> int:
    """A CPU that trains has no core to spare: one worker only hides the reading behind the computing."""
    return min(max(1, int(cores)) - 1, 1 if all(one.kind == "cpu" for one in devices) else 8)


def _cache(costs: Costs, way: Candidate) -> int:
    """Bytes of the whole machine. Processes that are not forked do not share memory."""
    if way.workers and not costs.machine.platform.startswith("Linux"):
        return 0
    if costs.workload.inputs is not None and not costs.workload.inputs.image_bytes:
        return 0
    if costs.request.cache != "auto":
        return costs.request.cache
    return capacity_of(costs.machine.devices[0], costs.request) // CACHE_SHARE


def fast_precision(devices: Sequence[Device]) -> Precision:
    """What all of them compute fast: clones of one model must not differ in more than their share."""
    # bf16 needs no loss scaling, but only recent CUDA devices compute it fast; old ones have fp16.
    if any(device.kind != "cuda" for device in devices):
        return "fp32"
    return "bf16" if all(device.bf16 for device in devices) else "fp16"


def _too_large(costs: Costs, ways: Sequence[Candidate]) -> UsageError:
    """Says what would fit."""
    lean = [_smallest(costs, way) for way in ways]
    least = min(lean, key=lambda one: max(m.needed / m.capacity for m in costs.memory(one)))
    short = max(costs.memory(least), key=lambda one: one.needed / one.capacity)
    samples = counted(max(least.at_once), "sample")
    need = "needs" if max(least.at_once) == 1 else "need"
    what = f"goal={costs.request.goal}: " if costs.request.goal.kind == "budget" else ""
    return UsageError(
        f"{what}nothing fits: {samples} at once {need} {format_bytes(short.needed)} on {short.device}, "
        f"and there are {format_bytes(short.capacity)}",
        advice=f"a device with {format_bytes(short.needed)}, a smaller size=, length= or network"
        + (", evaluation.batch=1" if short.evaluation else "")
        + ("" if costs.request.deploy.accumulation == "auto" else ", or a higher deploy.accumulation="),
    )


def _plan(costs: Costs, chosen: Candidate) -> Plan:
    request, deploy = costs.request, costs.request.deploy
    clones = [
        Clone(device=one.name, share=share) for one, share in zip(chosen.devices, chosen.shares, strict=True)
    ]
    each = len(clones) // chosen.replicas
    return Plan(
        goal=str(request.goal),
        strategy=chosen.strategy,
        replicas=tuple(
            Replica(clones=tuple(clones[i * each : (i + 1) * each])) for i in range(chosen.replicas)
        ),
        servers=chosen.servers,
        staleness=deploy.staleness,
        parameter_device=chosen.keeper,
        optimizer_device=chosen.keeper,
        batch=request.batch,
        accumulation=chosen.parts,
        recompute=chosen.recompute,
        batch_norm=deploy.batch_norm,
        precision=chosen.precision,
        memory_format=chosen.memory_format,
        threads=chosen.threads,
        loader_workers=chosen.workers,
        pinned=chosen.on_cpu and 1 < chosen.replicas <= costs.machine.cores,
        memory_fraction=deploy.memory_fraction,
        cache_bytes=chosen.cache,
        predicted=costs.predict(chosen),
    )
