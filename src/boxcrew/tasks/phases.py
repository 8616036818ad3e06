"""Tasks whose steps have several phases, in each of which other parameters learn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boxcrew.tasks.base import Task


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
