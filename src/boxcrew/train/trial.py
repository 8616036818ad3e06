"""Which way of computing is fastest for the model at hand on this CPU: tried for a moment before the run."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import get_args

import torch

from boxcrew.core.types import Batch
from boxcrew.deploy.deployment import deploy
from boxcrew.plan.plan import MemoryFormat, Plan
from boxcrew.plan.search import DeployConfig
from boxcrew.tasks.base import Task
from boxcrew.train.schedule import Length

SAMPLES = 4  # of a batch: enough to tell ways apart
ROUNDS = 2  # timed, after one that is not
MOST_SECONDS = 30.0
CLEARLY = 1.1
"""Only a way this much faster replaces the usual one. Of close ones the machine's mood would choose, and two
runs of one seed would differ in their last bits.
"""
WORTH_STEPS, WORTH_SECONDS = 200, 120.0  # a shorter run would not earn the trial back
MANY_THREADS = 4  # from here on half of them may be faster: cores that are halves of one compute no more


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
    """Of the ways tried in the time there is; each on a copy of the task, and nothing random is drawn. The
    plan says what was found.
    """
    batch = batch.split([min(SAMPLES, len(batch)), max(0, len(batch) - SAMPLES)])[0]
    steps = [_step(way, copy.deepcopy(task), batch) for way in ways]
    seconds: list[list[float]] = [[] for _ in ways]
    begun = time.monotonic()
    with torch.random.fork_rng(devices=[]):
        for turn in range(1 + ROUNDS):
            for step, found in zip(steps, seconds, strict=True):
                took = step()
                if turn > 0:  # the first step of each also makes room and plans of its own
                    found.append(took)
            if time.monotonic() - begun > MOST_SECONDS * (1 + turn) / (1 + ROUNDS):
                break
    if not all(seconds):
        said = f"too slow to try other ways than {_name(ways[0])}"
        return _because(ways[0], said)
    best = min(range(len(ways)), key=lambda i: min(seconds[i]))
    if min(seconds[0]) < CLEARLY * min(seconds[best]):
        best = 0
    tried = ", ".join(f"{_name(way)} {min(found):.2f} s" for way, found in zip(ways, seconds, strict=True))
    return _because(ways[best], f"tried with {len(batch)} samples: {tried}")


def _step(way: Plan, task: Task, batch: Batch) -> Callable[[], float]:
    """Gradients as in training, timed."""
    deployment = deploy(way)
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


def _because(plan: Plan, reason: str) -> Plan:
    return plan.model_copy(update={"reasons": (*plan.reasons, reason)})
