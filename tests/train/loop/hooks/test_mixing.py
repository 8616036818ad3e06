"""The end of mixed samples, in runs that steps limit and in runs that time limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from boxcrew.core.types import Batch
from boxcrew.train.loop.hooks.mixing import LastUnmixed
from boxcrew.train.loop.schedule import RunLimits
from boxcrew.train.loop.trainer import Trainer


def limits(*, steps: int | None = None, seconds: float | None = None) -> RunLimits:
    return RunLimits.of(steps=steps, epochs=None, seconds=seconds, num_samples=8, batch=4)


def no_batches(step: int) -> Iterator[Batch]:
    raise AssertionError(step)


class Course:
    """A run at some step and time, which notes how many steps each of its loaders mixes."""

    def __init__(self, run: RunLimits, fraction: float) -> None:
        self.limits = run
        self.loaders: list[int | None] = []
        self.hook = LastUnmixed(run, fraction, batches=self.make)

    def make(self, deployment: Any, mixed_steps: int | None) -> Callable[[int], Iterator[Batch]]:
        self.loaders.append(mixed_steps)
        return no_batches

    def reach(self, step: int, elapsed: float) -> None:
        progress = self.limits.progress(step, elapsed)
        trainer = SimpleNamespace(
            step=step, progress=progress, deployment=None, replace_batches=lambda batches: None
        )
        self.hook.after_step(cast("Trainer", trainer), cast("Any", None))


@pytest.mark.parametrize(("fraction", "mixed"), [(0.8, 8), (0.75, 8), (0.3, 3), (1.0, 10), (0.0, 0)])
def test_steps_that_are_mixed_are_known_from_the_start(fraction: float, mixed: int) -> None:
    course = Course(limits(steps=10), fraction)
    assert course.hook.mixed_steps == mixed
    for step in range(1, 11):
        course.reach(step, 0.0)
    assert course.loaders == []


@pytest.mark.parametrize("steps", [None, 100])
def test_in_a_timed_run_another_loader_takes_over_when_it_is_time(steps: int | None) -> None:
    course = Course(limits(steps=steps, seconds=60), 0.5)
    assert course.hook.mixed_steps is None
    for step in range(1, 12):
        course.reach(step, 5.0 * step)
    assert course.loaders == [6]
    assert course.hook.mixed_steps == 6


def test_a_run_that_never_mixes_or_always_does_keeps_its_loader() -> None:
    course = Course(limits(seconds=60), 1.0)
    for step in range(1, 13):
        course.reach(step, 5.0 * step)
    assert course.loaders == []


def test_a_timed_run_resumed_near_its_end_does_not_mix_again() -> None:
    course = Course(limits(seconds=60), 0.5)
    course.reach(40, 50.0)
    assert course.loaders == [40]
