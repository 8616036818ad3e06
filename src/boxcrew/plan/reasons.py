"""Why a plan and not another, in sentences with figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boxcrew.core.units import counted, format_bytes
from boxcrew.plan.candidate import Candidate
from boxcrew.plan.cost import Costs

MOST_WORKERS = 16


def most_workers(costs: Costs, candidate: Candidate) -> int:
    """Loader workers of a replica that there are cores for; a device that computes needs one to feed it."""
    cores = int(costs.machine.cores) // candidate.replicas
    return min(MOST_WORKERS, max(1, cores - (0 if candidate.on_cpu else 1)))


def reasons_for(
    costs: Costs, chosen: Candidate, fitting: Sequence[Candidate], ways: Sequence[Candidate]
) -> list[str]:
    found = [*_measured_ways(costs, chosen, fitting), *_parts(costs, chosen), *_inputs(costs, chosen)]
    usual = replace(ways[0], parts=chosen.parts, cache=chosen.cache, workers=chosen.workers)
    if chosen.strategy != usual.strategy:
        why = _too_large(costs, usual)
        found.append(f"{chosen.strategy}: {usual.strategy} {why or 'takes more memory'}")
    if chosen.recompute and costs.request.deploy.recompute == "auto":
        why = _too_large(costs, replace(chosen, recompute=False))
        less = "kept, they do not fit" if why else "that takes less memory"
        found.append(f"activations are computed again in backward: {less}")
    speeds = {costs.pace(device, chosen).each for device in chosen.devices}
    if len(speeds) > 1 and costs.request.deploy.shares is None:
        found.append(f"shares {', '.join(map(str, chosen.shares))}: by the speeds of the devices")
    if costs.machine.busy_cores >= 0.5:
        found.append(
            f"others use {costs.machine.busy_cores:g} of {counted(costs.machine.cores, 'core')} just now"
        )
    return found


def rejected(costs: Costs, chosen: Candidate, others: Sequence[Candidate]) -> list[str]:
    """What else was looked at, each with what it would cost; one sentence for each thing that differs."""
    sentences: dict[str, str] = {}
    for other in others:
        name = _difference(chosen, other)
        if name and name not in sentences:
            sentences[name] = f"{name}: {_why_not(costs, other, chosen)}"
    if costs.request.workers == "auto" and costs.workload.inputs is not None:
        for num in (chosen.workers - 1, chosen.workers + 1):
            if 0 <= num <= most_workers(costs, chosen):
                why = _why_not(costs, replace(chosen, workers=num), chosen)
                sentences[f"workers {num}"] = f"{counted(num, 'loader worker')}: {why}"
    return list(sentences.values())


def _difference(chosen: Candidate, other: Candidate) -> str:
    """In a word; empty where there is none, or more than one."""
    found: list[str] = []
    if other.strategy != chosen.strategy:
        found.append(other.strategy)
    if other.memory_format != chosen.memory_format:
        found.append(other.memory_format)
    if other.threads != chosen.threads:
        found.append(counted(other.threads, "thread"))
    if other.recompute != chosen.recompute:
        found.append("activations computed again" if other.recompute else "activations kept")
    if not found and other.parts != chosen.parts:
        found.append(f"in {counted(other.parts, 'part')}")
    return found[0] if len(found) == 1 else ""


def _too_large(costs: Costs, candidate: Candidate) -> str:
    """Empty, if it is not."""
    for memory in costs.memory(candidate):
        if not memory.fits:
            needed, there = format_bytes(memory.needed), format_bytes(memory.capacity)
            return f"needs {needed} on {memory.device}, and there are {there}"
    return ""


def _why_not(costs: Costs, other: Candidate, chosen: Candidate) -> str:
    too_large = _too_large(costs, other)
    if too_large:
        return too_large
    wall = costs.step(other).wall
    told, ratio = f"{wall:.3g} s a step", wall / costs.step(chosen).wall
    if costs.request.goal.kind in {"smallest", "deadline"}:
        most = max(one.needed for one in costs.memory(other))
        return f"{told}, and {format_bytes(most)} at most"
    return f"{told}, {ratio:.2f} x as long" if ratio >= 1.01 else f"{told}, not clearly faster"


def _measured_ways(costs: Costs, chosen: Candidate, fitting: Sequence[Candidate]) -> list[str]:
    """Those that were, of those that fit."""
    if not costs.observed.timings:
        return list(costs.observed.failures)
    samples = max(one.samples for one in costs.observed.timings)
    tried = {(one.memory_format, one.threads) for one in costs.observed.timings}
    alike = {
        one.way(): costs.pace(one.devices[0], one).at(samples)
        for one in fitting
        if (one.strategy, one.recompute) == (chosen.strategy, chosen.recompute)
        and (not one.on_cpu or (one.memory_format, one.threads) in tried)
    }
    told = ", ".join(f"{way} {seconds:.{2 if seconds >= 0.1 else 4}f} s" for way, seconds in alike.items())
    return [f"steps of {samples} samples were tried: {told}", *costs.observed.failures]


def _parts(costs: Costs, chosen: Candidate) -> list[str]:
    if chosen.parts == 1 or costs.request.deploy.accumulation != "auto":
        return []
    fewer = replace(chosen, parts=chosen.parts - 1)
    why = _too_large(costs, fewer)
    told = f"in {chosen.parts - 1} it {why}" if why else "as few samples at once as can be"
    return [f"in {chosen.parts} parts: {told}"]


def _inputs(costs: Costs, chosen: Candidate) -> list[str]:
    if costs.workload.inputs is None:
        return []
    step = costs.step(chosen)
    batch = costs.request.batch
    feeds, takes = batch / max(step.inputs, 1e-9), batch / max(step.busy, 1e-9)
    who = counted(chosen.workers, "worker") if chosen.workers else "the process itself"
    who += " in each replica" if chosen.workers and chosen.replicas > 1 else ""
    verb = "feeds" if chosen.workers <= 1 else "feed"
    return [f"{who} {verb} up to {feeds:.0f} samples/s, the model takes {takes:.0f}"]
