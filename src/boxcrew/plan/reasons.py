"""The reasons for a plan and against the alternatives, in sentences with figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boxcrew.core.units import counted, format_bytes
from boxcrew.plan.candidate import Candidate
from boxcrew.plan.cost import Costs


def most_workers(costs: Costs, candidate: Candidate) -> int:
    """Return how many loader workers per replica there are cores for. Feeding an accelerator takes a core."""
    cores = int(costs.machine.cores) // candidate.replicas
    return min(16, max(1, cores - (0 if candidate.on_cpu else 1)))


def reasons_for(
    costs: Costs, chosen: Candidate, feasible: Sequence[Candidate], candidates: Sequence[Candidate]
) -> list[str]:
    """Explain the chosen candidate; `feasible` are those of all `candidates` with enough memory."""
    reasons, deploy, num = _measured(costs, chosen, feasible), costs.request.deploy, chosen.accumulation
    if num > 1 and deploy.accumulation == "auto":
        lack = _memory_lack(costs, replace(chosen, accumulation=num - 1))
        why = f"with {num - 1} it needs {lack}" if lack else "as few samples at once as possible"
        reasons.append(f"{num} micro-batches per step: {why}")
    if costs.workload.inputs is not None:
        reasons.append(_inputs(costs, chosen))
    workers, cache = chosen.loader_workers, chosen.cache_bytes
    usual = replace(candidates[0], accumulation=num, loader_workers=workers, cache_bytes=cache)
    if chosen.strategy != usual.strategy:
        lack = _memory_lack(costs, usual)
        why = f"needs {lack}" if lack else "takes more memory"
        reasons.append(f"{chosen.strategy}: {usual.strategy} {why}")
    if chosen.recompute and deploy.recompute == "auto":
        lack = _memory_lack(costs, replace(chosen, recompute=False))
        why = "keeping them needs too much memory" if lack else "this takes less memory"
        reasons.append(f"activations are recomputed in backward: {why}")
    if (
        deploy.shares is None
        and len({costs.compute_time(device, chosen).each for device in chosen.devices}) > 1
    ):
        reasons.append(f"shares {', '.join(map(str, chosen.shares))}: by the speeds of the devices")
    if costs.machine.busy_cores >= 0.5:
        cores = counted(costs.machine.cores, "core")
        reasons.append(f"other processes use {costs.machine.busy_cores:g} of {cores} right now")
    return reasons


def rejected(costs: Costs, chosen: Candidate, others: Sequence[Candidate]) -> list[str]:
    """Return one sentence for each kind of alternative: what it would cost compared with the chosen plan."""
    sentences: dict[str, str] = {}
    for other in others:
        if (name := _difference(chosen, other)) and name not in sentences:
            sentences[name] = f"{name}: {_why_not(costs, other, chosen)}"
    if costs.request.workers == "auto" and costs.workload.inputs is not None:
        for num in (chosen.loader_workers - 1, chosen.loader_workers + 1):
            if 0 <= num <= most_workers(costs, chosen):
                why = _why_not(costs, replace(chosen, loader_workers=num), chosen)
                sentences[f"workers {num}"] = f"{counted(num, 'loader worker')}: {why}"
    return list(sentences.values())


def _difference(chosen: Candidate, other: Candidate) -> str:
    """Name the difference between two candidates; empty if there is none, or more than one."""
    names = {
        "strategy": other.strategy,
        "memory_format": other.memory_format,
        "threads": counted(other.threads, "thread"),
        "recompute": "activations recomputed" if other.recompute else "activations kept",
    }
    differences = [name for key, name in names.items() if getattr(other, key) != getattr(chosen, key)]
    if not differences and other.accumulation != chosen.accumulation:
        differences.append(f"deploy.accumulation={other.accumulation}")
    return differences[0] if len(differences) == 1 else ""


def _memory_lack(costs: Costs, candidate: Candidate) -> str:
    """Return what a candidate needs on the first device with too little memory; empty if all have enough."""
    for memory in costs.memory(candidate):
        if not memory.is_enough:
            needed, capacity = format_bytes(memory.needed), format_bytes(memory.capacity)
            return f"{needed} on {memory.device}, which has {capacity}"
    return ""


def _why_not(costs: Costs, other: Candidate, chosen: Candidate) -> str:
    if lack := _memory_lack(costs, other):
        return f"needs {lack}"
    wall = costs.step(other).wall
    seconds, ratio = f"{wall:.3g} s per step", wall / costs.step(chosen).wall
    if costs.request.goal.kind in {"smallest", "deadline"}:
        most = max(memory.needed for memory in costs.memory(other))
        return f"{seconds}, at most {format_bytes(most)} of memory"
    return f"{seconds}, {ratio:.2f} x as long" if ratio >= 1.01 else f"{seconds}, not clearly faster"


def _measured(costs: Costs, chosen: Candidate, feasible: Sequence[Candidate]) -> list[str]:
    """Return the measured step times of feasible candidates, and the trials that failed."""
    timings = costs.observed.timings
    if not timings:
        return list(costs.observed.failures)
    samples = max(timing.samples for timing in timings)
    tried = {(timing.memory_format, timing.threads) for timing in timings}
    seconds = {
        (candidate.memory_format, candidate.threads): costs.compute_time(candidate.devices[0], candidate).at(
            samples
        )
        for candidate in feasible
        if (candidate.strategy, candidate.recompute) == (chosen.strategy, chosen.recompute)
        and (not candidate.on_cpu or (candidate.memory_format, candidate.threads) in tried)
    }
    texts = [
        f"{memory_format} on {counted(threads, 'thread')} {value:.{2 if value >= 0.1 else 4}f} s"
        for (memory_format, threads), value in seconds.items()
    ]
    return [f"measured {samples}-sample steps: {', '.join(texts)}", *costs.observed.failures]


def _inputs(costs: Costs, chosen: Candidate) -> str:
    """Compare how fast samples are made and used."""
    step, batch, num = costs.step(chosen), costs.request.batch, chosen.loader_workers
    made, used = batch / max(step.inputs, 1e-9), batch / max(step.busy, 1e-9)
    who = counted(num, "loader worker") if num else "the training process"
    who += " per replica" if num and chosen.replicas > 1 else ""
    return f"{who} {'loads' if num <= 1 else 'load'} up to {made:.0f} samples/s, the model uses {used:.0f}"
