"""Which way of computing is fastest for the model at hand on this CPU: tried for a moment before the run."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from typing import get_args

import torch

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch
from boxcrew.core.units import counted
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
    if any(clone.device != "cpu" for clone in plan.clones):
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
    the task, and nothing random is drawn. A trial never ends a run: a way that fails is not taken, and said.
    """
    last_begin = time.monotonic() + MOST_SECONDS
    with torch.random.fork_rng(devices=[]):
        found = [_try(_step(way, copy.deepcopy(task), batch), last_begin) for way in ways]
    tried = ", ".join(f"{_name(way)} {_told(result)}" for way, result in zip(ways, found, strict=True))
    seconds = [result if isinstance(result, float) else math.inf for result in found]
    best = seconds.index(min(seconds))
    chosen = ways[0] if seconds[0] <= CLEARLY * seconds[best] else ways[best]
    return chosen.because(f"tried with {len(batch)} samples: {tried}")


def _try(step: Step, last_begin: float) -> float | str | None:
    """The seconds of the fastest step, why there is none, or None where there was no time for one."""
    if time.monotonic() > last_begin:
        return None
    try:
        step()  # not counted: it also makes room and plans of its own
        seconds = [step() for _ in range(ROUNDS) if time.monotonic() < last_begin]
    except (RuntimeError, ValueError, BoxcrewError) as error:
        return str(error).partition("\n")[0]
    return min(seconds, default=None)


def _told(result: float | str | None) -> str:
    if isinstance(result, float):
        return f"{result:.2f} s"
    return "not in time" if result is None else f"failed ({result})"


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
    return f"{way.memory_format} on {counted(way.threads, 'thread')}"
