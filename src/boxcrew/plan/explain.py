"""A plan for people: what it is expected to take, as lines and as a table."""

from __future__ import annotations

from boxcrew.core.units import format_bytes
from boxcrew.plan.plan import Plan
from boxcrew.plan.prediction import Memory

_BOUNDS = {
    "compute": "computing, not by reading",
    "input": "reading: the devices wait for samples",
    "communication": "messages between processes",
}


def expectations(plan: Plan) -> list[str]:
    """What the plan is expected to take; nothing of one that was written by hand."""
    found = plan.predicted
    if found is None:
        return []
    memory = "; ".join(_in_short(one) for one in found.memory)
    return [
        f"expected: {found.step.likely:.3g} s a step ({found.step.low:.3g} to {found.step.high:.3g}), "
        f"{_rate(found.images_per_second)} samples/s, bound by {_BOUNDS[found.bound]}",
        f"expected: an epoch in {found.epoch}, the steps of the run in {found.run}, by {found.basis}",
        f"expected: {memory}",
    ]


def _in_short(memory: Memory) -> str:
    size, most, there = map(format_bytes, (memory.peak, memory.needed, memory.capacity))
    return f"{size} on {memory.device}, at most {most} of {there}"


def memory_table(plan: Plan) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows: what for, and how much on each device. Devices that are alike share a column."""
    assert plan.predicted is not None
    alike: dict[Memory, list[str]] = {}
    for one in plan.predicted.memory:
        alike.setdefault(one.model_copy(update={"device": ""}), []).append(one.device)
    names = [
        devices[0] if len(devices) == 1 else f"{len(devices)} x {devices[0]}…" for devices in alike.values()
    ]
    rows = [(part, *(format_bytes(getattr(one, part)) for one in alike)) for part in Memory.kinds]
    rows += [
        ("in all", *(format_bytes(one.peak) for one in alike)),
        ("at most", *(format_bytes(one.needed) for one in alike)),
        ("there are", *(format_bytes(one.capacity) for one in alike)),
    ]
    return ("memory", *names), rows


def _rate(value: float) -> str:
    """To three digits, without an exponent."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
