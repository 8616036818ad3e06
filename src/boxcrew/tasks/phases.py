"""Tasks whose steps have several phases, in each of which other parameters learn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boxcrew.tasks.base import Task


def shares_of(task: Task) -> dict[str, float]:
    """Of all steps, those that have each phase."""
    steps = [task.phases_of(step) for step in range(task.cycle)]
    return {phase: sum(phase in step for step in steps) / len(steps) for phase in task.phases}


@contextmanager
def learning_in(task: Task, phase: str) -> Iterator[None]:
    """Inside, parameters that learn in other phases do not."""
    if len(task.phases) == 1:
        yield
        return
    held = [p for name, p in task.named_parameters() if p.requires_grad and not task.learns_in(phase, name)]
    for parameter in held:
        parameter.requires_grad = False
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad = True
