"""Trial steps in a separate process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boxcrew.plan.observed import ComputeMode, Observed
from boxcrew.plan.plan import MemoryFormat
from boxcrew.recipes import RECIPES
from boxcrew.tasks.data import LoaderOptions
from boxcrew.tasks.facts import DataFacts
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.schedule import ENDLESS, RunLimits
from boxcrew.train.output.screen import Screen
from boxcrew.train.planning.trial import (
    TrialJob,
    is_long_run,
    run_trial,
    trial_settings,
)
from boxcrew.train.run.data import load_task_data
from tests.helpers import learning
from tests.helpers.made_examples import make_folder
from tests.helpers.plans import plan_of
from tests.helpers.tiny import BACKBONE

GIB = 1 << 30
NETWORK = {"name": "ssdlite", "backbone": BACKBONE, "size": learning.SIZE}


def config(**settings: Any) -> RunConfig:
    return RunConfig.of({"steps": 1, "batch": 6, "detector": NETWORK, **settings})


def setting(memory_format: MemoryFormat = "channels_last", threads: int = 1) -> ComputeMode:
    return ComputeMode(device="cpu", memory_format=memory_format, threads=threads, precision="fp32")


def result_of(
    *trial_settings: ComputeMode, memory: int = 8 * GIB, seconds: float = 60.0, **settings: Any
) -> Observed:
    job = TrialJob(
        config=config(**settings),
        facts=DataFacts(classes=("cup", "pot")),
        batch=learning.make_batch(6, step=0),
        settings=trial_settings,
        memory=memory,
        least=2,
    )
    return run_trial(job, seconds=seconds)


def test_the_usual_way_is_timed_with_more_and_more_samples_the_others_with_few() -> None:
    result = result_of(setting(), setting("contiguous"))
    assert not result.failures
    tried = [(each.memory_format, each.samples) for each in result.timings]
    assert tried[:4] == [("channels_last", num) for num in (2, 4, 6)] + [("contiguous", 4)]
    few = {each.memory_format: each.seconds for each in result.timings if each.samples == 4}
    assert (("contiguous", 6) in tried) == (few["contiguous"] < few["channels_last"])
    for each in result.timings:
        assert each.core_seconds is not None
        assert 0 < each.seconds < 60
        assert each.core_seconds < 2 * each.seconds + 0.1
    sizes = [each.num_bytes for each in result.timings]
    assert sizes[3:] == [None] * len(sizes[3:])  # by then the memory was used by another setting
    first, second, third = (size for size in sizes[:3] if size is not None)
    assert 1 << 20 < first <= second <= third < 4 * GIB


def test_a_task_with_phases_is_tried_too(tmp_path: Path) -> None:
    settings = {"data": str(make_folder(tmp_path)), "size": 28, "steps": 1}
    config = RECIPES.get("gan")().changed({**settings, "task": {"width": 4, "critic_steps": 2}})
    task_data = load_task_data(config, workers=1, screen=Screen())
    batch = next(task_data.loader(LoaderOptions(batch=4, seed=0)).batches())
    job = TrialJob(config=config, facts=task_data.facts, batch=batch, settings=(setting(),), memory=8 * GIB)
    result = run_trial(job, seconds=60.0)
    assert not result.failures
    assert result.timings[0].samples == 1


def test_where_memory_is_short_it_is_told_and_the_caller_lives() -> None:
    """A real process with a real limit: it has less than it needs to begin."""
    result = result_of(setting(), memory=200 << 20)
    assert not result.timings
    assert result.oom_samples == 2
    assert "trial of channels_last on 1 thread with 2 samples failed: not enough memory" in result.failures


def test_what_fails_is_told() -> None:
    result = result_of(setting(), optim={"name": "momentum", "rate": 1e-3}, trainable="detector.head*")
    assert not result.timings
    assert "failed: trainable: 'detector.head*' matches no parameter" in result.failures[0]


def test_without_time_nothing_is_found() -> None:
    result = result_of(setting(), seconds=0.3)
    assert not result.timings
    assert result.failures == ("no trial step was finished in 0.3 s",)


def test_where_no_process_can_be_started_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert result_of(setting()).failures == ("the trial cannot be started: No such file or directory",)


def test_ways_differ_in_what_was_left_to_us() -> None:
    own = plan_of(6, memory_format="channels_last", threads=2)
    assert [str(each) for each in trial_settings(own, config(), busy_cores=0)] == [
        "channels_last on 2 threads",
        "contiguous on 2 threads",
    ]
    fixed = config(deploy={"memory_format": "channels_last", "threads": 2})
    assert [str(each) for each in trial_settings(own, fixed, busy_cores=2)] == ["channels_last on 2 threads"]
    many = plan_of(6, memory_format="channels_last", threads=8)
    assert {each.threads for each in trial_settings(many, config(), busy_cores=0)} == {8, 4}


def test_where_others_are_at_work_fewer_threads_are_tried() -> None:
    own = plan_of(6, memory_format="channels_last", threads=2)
    assert [each.threads for each in trial_settings(own, config(), busy_cores=0.9)] == [2, 2, 1]
    assert [each.threads for each in trial_settings(own, config(), busy_cores=0.2)] == [2, 2]


@pytest.mark.parametrize(
    ("steps", "seconds", "worth"),
    [
        (199, None, False),
        (200, None, True),
        (ENDLESS, 119.0, False),
        (ENDLESS, 120.0, True),
        (100, 3600.0, False),
    ],
)
def test_short_runs_do_without(*, steps: int, seconds: float | None, worth: bool) -> None:
    assert is_long_run(RunLimits(steps=steps, seconds=seconds, steps_per_epoch=10)) == worth
