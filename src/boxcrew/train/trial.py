"""Which way of computing is fastest for the model at hand on this CPU: tried for a moment before the run."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import get_args

import torch

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import deploy
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.search import DeployConfig
from boxcrew.tasks.base import Task
from boxcrew.train.schedule import Length

SAMPLES = 4  # enough to tell ways apart
ROUNDS = 2  # of timed steps
MOST_SECONDS = 30.0  # no step is begun later
CLEARLY = 1.1
"""Only a way this much faster replaces the usual one. Of close ones the machine's mood would choose, and two
runs of one seed would differ in their last bits.
"""
WORTH_STEPS, WORTH_SECONDS = 200, 120.0  # a shorter run would not earn the trial back
MANY_THREADS = 4  # from here on half of them may be faster: cores that are halves of one compute no more

Step = Callable[[], float]
"""Does a step, and gives its seconds."""


def is_worth_it(length: Length) -> bool:
    seconds_do = length.seconds is None or length.seconds >= WORTH_SECONDS
    return seconds_do and length.steps >= WORTH_STEPS


def ways_of(plan: Plan, wishes: DeployConfig) -> list[Plan]:
    """The plan itself first; the others differ in what was left to us. Only for CPUs there is a choice."""
    if plan.clone_device != "cpu":
        return [plan]
    formats: Sequence[MemoryFormat] = (plan.memory_format,)
    if wishes.memory_format == "auto":
        formats = (plan.memory_format, *(f for f in get_args(MemoryFormat) if f != plan.memory_format))
    threads = [plan.threads]
    if wishes.threads == "auto" and plan.threads >= MANY_THREADS:
        threads.append(plan.threads // 2)
    return [plan.model_copy(update={"memory_format": f, "threads": t}) for f in formats for t in threads]


def fastest(ways: Sequence[Plan], task: Task, batch: Batch) -> Plan:
    """The first way, or one that is clearly faster; the plan says what was found. Each is tried on a copy of
    the task, and nothing random is drawn. A trial never ends a run: a way that fails is not taken.
    """
    last_begin = time.monotonic() + MOST_SECONDS
    with torch.random.fork_rng(devices=[]):
        steps = _warmed_up(ways, task, batch, last_begin)
        seconds = [_least(step, last_begin) for step in steps.values()]
    if len(seconds) < 2 or None in seconds:
        return ways[0].because(f"no time to try other ways than {_name(ways[0])}")
    known = {i: least for i, least in zip(steps, seconds, strict=True) if least is not None}
    best = min(known, key=lambda i: known[i])
    if 0 in known and known[0] < CLEARLY * known[best]:
        best = 0
    tried = ", ".join(f"{_name(ways[i])} {least:.2f} s" for i, least in known.items())
    return ways[best].because(f"tried with {len(batch)} samples: {tried}")


def _warmed_up(ways: Sequence[Plan], task: Task, batch: Batch, last_begin: float) -> dict[int, Step]:
    """The ways that work, by their place, after a step that also makes room and plans of its own."""
    steps: dict[int, Step] = {}
    for i, way in enumerate(ways):
        step = _step(way, copy.deepcopy(task), batch)
        try:
            took = step()
        except (RuntimeError, ValueError, BoxcrewError):
            continue
        if time.monotonic() + took > last_begin:
            break
        steps[i] = step
    return steps


def _least(step: Step, last_begin: float) -> float | None:
    seconds = [step() for _ in range(ROUNDS) if time.monotonic() < last_begin]
    return min(seconds, default=None)


def _step(way: Plan, task: Task, batch: Batch) -> Step:
    """Gradients as in training, of a batch that is one of its parts."""
    deployment = deploy(way.model_copy(update={"accumulation": 1}))
    deployment.place(task)

    def take() -> float:
        with deployment:
            begun = time.perf_counter()
            deployment.gradients(task, batch, "train")
            took = time.perf_counter() - begun
        deployment.discard(task)
        return took

    return take


def _name(way: Plan) -> str:
    return f"{way.memory_format} on {way.threads} thread{'s' if way.threads > 1 else ''}"
