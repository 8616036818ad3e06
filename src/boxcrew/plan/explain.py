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
    step, rate = predicted.step, predicted.images_per_second
    rate_text = f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}"  # three digits, without an exponent
    memory = [
        f"{format_bytes(each.peak)} on {each.device}, "
        f"at most {format_bytes(each.needed)} of {format_bytes(each.capacity)}"
        for each in predicted.memory
    ]
    return [
        f"expected: {step.likely:.3g} s per step ({step.low:.3g} to {step.high:.3g}), "
        f"{rate_text} samples/s, limited by {_BOUNDS[predicted.bound]}",
        f"expected: {predicted.epoch} per epoch, {predicted.run} for all steps, based on {predicted.basis}",
        f"expected memory: {'; '.join(memory)}",
    ]


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
