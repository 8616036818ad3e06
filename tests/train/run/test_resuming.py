"""Settings that may change when a run is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boxcrew.core.errors import UsageError
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import newest_checkpoint
from boxcrew.train.loop.schedule import ScheduleConfig
from boxcrew.train.run.resuming import (
    Resumed,
    describe_changes,
    record_changes,
    require_same_batch,
    with_resolved_auto,
)
from boxcrew.train.run.stored_settings import FREE, PATHS, changes_since


@pytest.fixture
def begun(tmp_path: Path) -> RunConfig:
    return RunConfig(epochs=7, out=tmp_path)


def test_what_is_left_to_the_data_stays_as_it_was_settled() -> None:
    auto = RunConfig(epochs=7).changed({"detector": {"min_scale": "auto", "max_scale": "auto"}})
    settled = auto.changed({"detector": {"min_scale": 0.21, "max_scale": 0.7}})
    assert with_resolved_auto(auto, settled.task.tree()).task == settled.task
    other = auto.changed({"detector": {"min_scale": 0.3}})
    now = with_resolved_auto(other, settled.task.tree())
    assert now.tree()["detector"]["min_scale"] == 0.3, "given: for `changes_since` to refuse"


def test_of_another_detector_nothing_is_taken() -> None:
    before = RunConfig(epochs=7).changed({"detector": "ssd"}).task.tree()
    auto = RunConfig(epochs=7).changed({"detector": {"min_scale": "auto"}})
    assert with_resolved_auto(auto, before) == auto


def test_nothing(tmp_path: Path, begun: RunConfig) -> None:
    changes = changes_since(begun, begun.changed({"out": "elsewhere", "name": "other"}), tmp_path)
    assert changes == {}
    assert describe_changes(changes, begun) == []
    record_changes(tmp_path, changes, step=3)
    assert not (tmp_path / "changes.jsonl").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epochs": 9}, {"epochs": (7, 9)}),
        ({"steps": 100}, {"epochs": (7, None), "steps": (None, 100)}),
        ({"time": "2h"}, {"epochs": (7, None), "time": (None, 7200)}),
        ({"device": "cuda:0"}, {"device": ("auto", "cuda:0")}),
        ({"loader": {"workers": 3}}, {"loader.workers": ("auto", 3)}),
        ({"deploy": {"threads": 1}}, {"deploy.threads": (None, 1)}),
        ({"saver": {"keep": 5}}, {"saver.keep": (2, 5)}),
        ({"evaluation": {"patience": 4}}, {"evaluation.patience": (None, 4)}),
        ({"summaries": {"images": 0}}, {"summaries.images": (8, 0)}),
        ({"guard": {"failures": 9}}, {"guard.failures": (5, 9)}),
    ],
)
def test_what_says_nothing_about_the_past_is_allowed_and_recorded(
    tmp_path: Path, begun: RunConfig, settings: dict[str, Any], expected: dict[str, tuple[Any, Any]]
) -> None:
    changes = changes_since(begun, begun.changed(settings), tmp_path)
    assert {key: changes[key][1] for key in expected} == {key: new for key, (_, new) in expected.items()}
    assert changes.keys() == expected.keys()
    for step in (3, 8, 8):  # killed before its next checkpoint, a run continues from the same step again
        record_changes(tmp_path, changes, step=step)
    lines = [json.loads(line) for line in (tmp_path / "changes.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 8]
    for key, (_, new) in expected.items():
        assert lines[0]["changes"][key]["to"] == new
        assert key in describe_changes(changes, begun)[0]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"seed": 1}, "seed"),
        ({"batch": 4}, "batch"),
        ({"size": 128}, "detector.size"),
        ({"detector": {"name": "ssd"}}, "detector."),
        ({"data": {"path": "other"}}, "data.path"),
        ({"transforms": {"flip": 0}}, "transforms.flip"),
        ({"optim": {"rate": 5}}, "optim.rate"),
        ({"schedule": {"name": "fixed"}}, "schedule.name"),
        ({"init": {"kind": "pretrained"}}, "init.kind"),
        ({"trainable": "detector.*heads*"}, "trainable"),
        ({"unfreeze": {0.5: "*"}}, "unfreeze.0.5"),
        ({"evaluation": {"metric": "AP50"}}, "evaluation.metric"),
    ],
)
def test_what_would_change_the_past_is_refused_by_name(
    tmp_path: Path, begun: RunConfig, settings: dict[str, Any], key: str
) -> None:
    with pytest.raises(UsageError, match="cannot change any more") as caught:
        changes_since(begun, begun.changed(settings), tmp_path)
    assert caught.value.message.startswith(key)
    assert "init=finetune" in caught.value.advice
    assert "init=resume" in caught.value.advice


def test_every_group_is_one_or_the_other() -> None:
    """A new setting is refused until somebody has thought about it."""
    assert set(RunConfig.model_fields) >= FREE | PATHS


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"name": "cosine", "warmup": 0}, "cosine are relative"),
        ({"name": "fixed", "warmup": 0.1}, "warmup are relative"),
        ({"name": "fixed", "warmup": 0}, None),
        ({"name": "exponential", "warmup": 0}, None),
    ],
)
def test_a_longer_run_is_told_about_its_schedule(
    tmp_path: Path, begun: RunConfig, schedule: dict[str, Any], message: str | None
) -> None:
    changes = changes_since(begun, begun.changed({"epochs": 9}), tmp_path)
    config = begun.model_copy(update={"schedule": ScheduleConfig.of(schedule)})
    lines = describe_changes(changes, config)
    assert len(lines) == (1 if message is None else 2)
    assert message is None or message in lines[1]


def test_a_plan_by_hand_must_have_the_same_batch(tiny_run: Path) -> None:
    checkpoint, _ = newest_checkpoint(tiny_run / "checkpoints")
    assert checkpoint is not None
    resumed = Resumed.of(tiny_run, checkpoint, is_own=True)
    plan = resumed.record.plan
    require_same_batch(resumed, plan.model_copy(update={"threads": 3}))
    with pytest.raises(UsageError, match=r"batch 9: the run in .* was started with 4"):
        require_same_batch(resumed, plan.model_copy(update={"batch": 9}))
