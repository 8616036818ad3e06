"""The predictions of a plan for people, as lines and as a table."""

from __future__ import annotations

from boxcrew.core.units import format_bytes
from boxcrew.plan.plan import Plan
from boxcrew.plan.prediction import Memory

_BOUNDS = {
    "compute": "compute",
    "input": "data loading: the devices wait for samples",
    "communication": "communication between processes",
}


def expectations(plan: Plan) -> list[str]:
    """Return the predicted time and memory as lines; none for a plan without a prediction."""
    predicted = plan.predicted
    if predicted is None:
        return []
    step = predicted.step
    memory = "; ".join(map(_memory_text, predicted.memory))
    return [
        f"expected: {step.likely:.3g} s per step ({step.low:.3g} to {step.high:.3g}), "
        f"{_rate(predicted.images_per_second)} samples/s, limited by {_BOUNDS[predicted.bound]}",
        f"expected: {predicted.epoch} per epoch, {predicted.run} for all steps, based on {predicted.basis}",
        f"expected memory: {memory}",
    ]


def _memory_text(memory: Memory) -> str:
    peak, needed, capacity = map(format_bytes, (memory.peak, memory.needed, memory.capacity))
    return f"{peak} on {memory.device}, at most {needed} of {capacity}"


def memory_table(plan: Plan) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return column titles and rows: bytes of each kind on each device. Equal devices share a column."""
    assert plan.predicted is not None
    devices: dict[Memory, list[str]] = {}
    for memory in plan.predicted.memory:
        devices.setdefault(memory.model_copy(update={"device": ""}), []).append(memory.device)
    titles = [names[0] if len(names) == 1 else f"{len(names)} x {names[0]}…" for names in devices.values()]
    names = {kind: kind for kind in Memory.kinds}
    names |= {"total": "peak", "at most": "needed", "available": "capacity"}
    rows = [(row, *(format_bytes(getattr(each, name)) for each in devices)) for row, name in names.items()]
    return ("memory", *titles), rows


def _rate(value: float) -> str:
    """Format a number with three digits, without an exponent."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
