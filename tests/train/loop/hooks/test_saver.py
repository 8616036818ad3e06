"""Checkpoints: when, which stay, and what happens while they are written."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxcrew.core.files import flush
from boxcrew.core.types import Batch, Losses
from boxcrew.tasks.base import Task
from boxcrew.train.config import SaverConfig
from boxcrew.train.loop.checkpoint import Checkpoint, list_checkpoints, read_checkpoint, write_checkpoint
from boxcrew.train.loop.hooks import saver as module
from boxcrew.train.loop.hooks.saver import Saver
from boxcrew.train.loop.trainer import Hook, StepReport, Trainer

MakeTrainer = Callable[..., Trainer]


class Small(Task):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 4)

    def forward(self, batch: Batch, phase: str = "train") -> Losses:
        assert phase == "train"
        return Losses(terms={"class": self.body(batch.inputs).square().sum()}, weight=torch.tensor(1.0))


def batches(step: int) -> Iterator[Batch]:
    while True:
        yield Batch(inputs=torch.full((1, 4), 0.1 + step % 3), targets={}, keys=("a",))
        step += 1


def saved(folder: Path) -> list[int]:
    return [int(place.name) for place in list_checkpoints(folder)]


class Written:
    """Steps in the order in which they were written; `before` is called in the writing thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[Checkpoint], None]) -> None:
        self.steps: list[int] = []

        def write(folder: Path, checkpoint: Checkpoint) -> Path:
            before(checkpoint)
            self.steps.append(checkpoint.step)
            return write_checkpoint(folder, checkpoint)

        monkeypatch.setattr(module, "write_checkpoint", write)


class After(Hook):
    name = "after"

    def __init__(self, act: Callable[[Trainer], None]) -> None:
        self._act = act

    def after_step(self, trainer: Trainer, report: StepReport) -> None:
        self._act(trainer)


def fit(trainer: Trainer, saver: Saver) -> Trainer:
    try:
        trainer.fit(batches)
    finally:
        saver.close()
    return trainer


def test_seconds_are_of_a_clock_that_nobody_sets(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 1000.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    wall = iter(1e9 + 1e7 * (-1) ** i for i in range(10**6))
    monkeypatch.setattr(time, "time", lambda: next(wall))
    written = Written(monkeypatch, lambda checkpoint: None)
    saver = Saver(tmp_path, SaverConfig(every_seconds="1m"), warn=pytest.fail)

    def pass_time(trainer: Trainer) -> None:
        clock["now"] += 25

    fit(make_trainer(Small(), [After(pass_time), saver], steps=10, rate=1e-3), saver)
    assert written.steps == [0, 3, 6, 9, 10]


@pytest.mark.parametrize(
    ("step_seconds", "steps_per_epoch", "expected"),
    [
        (
            0.03,
            1.0,
            [0, 17, 34, 51, 68, 85, 100],
        ),  # an epoch takes no longer than a checkpoint: every half second
        (1.0, 30.0, [0, 30, 60, 90, 100]),
    ],
)
def test_unless_told_it_saves_every_epoch_in_two_percent_of_the_time(
    make_trainer: MakeTrainer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step_seconds: float,
    steps_per_epoch: float,
    expected: list[int],
) -> None:
    clock = {"now": 1000.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    original = Trainer.checkpoint

    def slow(self: Trainer) -> Checkpoint:
        clock["now"] += 0.01
        return original(self)

    monkeypatch.setattr(Trainer, "checkpoint", slow)
    written = Written(monkeypatch, lambda checkpoint: None)
    saver = Saver(tmp_path, SaverConfig(), warn=pytest.fail)

    def work(trainer: Trainer) -> None:
        clock["now"] += step_seconds
        saver._finish_writing()  # the other thread is done in no time

    trainer = make_trainer(
        Small(), [After(work), saver], steps_per_epoch=steps_per_epoch, steps=100, rate=1e-4
    )
    fit(trainer, saver)
    assert written.steps == expected
    assert saver.loop_seconds == pytest.approx(0.01 * len(expected))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"keep": 1}, [10, 11]),
        ({"keep": 3}, [8, 10, 11]),
        ({"keep": 1, "keep_every_hours": 2}, [4, 8, 10, 11]),
        ({"keep": 1, "keep_best": True}, [3, 10, 11]),
        ({"keep": 2, "keep_best": True, "keep_every_hours": 5}, [3, 10, 11]),
    ],
    ids=str,
)
def test_what_stays(
    make_trainer: MakeTrainer, tmp_path: Path, settings: dict[str, Any], expected: list[int]
) -> None:
    """Each step is half an hour of training; saved at every second; the third was the best."""
    config = SaverConfig(every_steps=2, **settings)
    best = {"step": 0}
    saver = Saver(tmp_path, config, warn=pytest.fail, best_step=lambda: best["step"])

    def work(trainer: Trainer) -> None:
        trainer.elapsed = trainer.step * 1800
        best["step"] = min(trainer.step, 3)

    fit(make_trainer(Small(), [After(work), saver], steps=11, rate=1e-3), saver)
    assert saved(tmp_path) == expected


def test_the_loop_goes_on_while_a_checkpoint_is_written(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of its step is written, not that of the moment of writing."""
    may_write = threading.Event()
    written = Written(monkeypatch, lambda checkpoint: assert_true(may_write.wait(timeout=20)))
    states: dict[int, Tensor] = {}
    task = Small()

    def work(trainer: Trainer) -> None:
        states[trainer.step] = task.body.weight.detach().clone()
        assert trainer.step > 6 or not written.steps
        if trainer.step == 6:
            may_write.set()

    saver = Saver(tmp_path, SaverConfig(every_steps=7, keep=9), warn=pytest.fail)
    states[0] = task.body.weight.detach().clone()
    fit(make_trainer(task, [After(work), saver], steps=10, rate=0.01), saver)
    assert written.steps == saved(tmp_path) == [0, 7, 10]
    for place in list_checkpoints(tmp_path):
        read = read_checkpoint(place)
        assert torch.equal(read.tensors["task/body.weight"], states[read.step])
    assert not torch.equal(states[0], states[6])


def assert_true(value: bool) -> None:
    assert value


def test_a_full_disk_is_said_once_and_survived(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {"from": 3, "to": 6}

    def fail(checkpoint: Checkpoint) -> None:
        if full["from"] <= checkpoint.step <= full["to"]:
            raise OSError(errno.ENOSPC, "No space left on device")

    Written(monkeypatch, fail)
    warnings: list[str] = []
    saver = Saver(tmp_path, SaverConfig(every_steps=1, keep=2), warn=warnings.append)
    seen: dict[int, list[int]] = {}

    def look(trainer: Trainer) -> None:
        time.sleep(0.02)
        seen[trainer.step] = saved(tmp_path)

    fit(make_trainer(Small(), [saver, After(look)], steps=8, rate=1e-3), saver)
    assert seen[6] == [1, 2], "the last good ones stay"
    assert saved(tmp_path) == [7, 8]
    assert saver.trouble is None
    assert len(warnings) == 2
    assert "step 3 could not be written: No space left on device; it needs" in warnings[0]
    assert "are free" in warnings[0]
    assert "the run continues" in warnings[0]
    assert "written again" in warnings[1]


def test_what_was_written_until_then_is_on_the_disk_before_the_marker_is(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut must not take lines that a checkpoint says are there."""
    flushed: list[str] = []
    original = os.fsync

    def fsync(handle: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        original(handle)

    lines = tmp_path / "metrics.jsonl"
    lines.write_text("{}\n")
    saver = Saver(tmp_path / "all", SaverConfig(every_steps=2), warn=pytest.fail, sync=lambda: flush(lines))
    monkeypatch.setattr(os, "fsync", fsync)
    fit(make_trainer(Small(), [saver], steps=4, rate=1e-3), saver)
    assert [name for name in flushed if name in {lines.name, "COMMIT"}] == [lines.name, "COMMIT"] * 3


def test_lines_that_cannot_be_flushed_keep_a_checkpoint_from_being_made(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    warnings: list[str] = []
    broken = {"is": False}

    def sync() -> None:
        if broken["is"]:
            raise OSError(errno.EIO, "Input/output error")

    def act(trainer: Trainer) -> None:
        saver._finish_writing()
        broken["is"] = trainer.step == 2

    saver = Saver(tmp_path, SaverConfig(every_steps=1, keep=9), warn=warnings.append, sync=sync)
    fit(make_trainer(Small(), [After(act), saver], steps=4, rate=1e-3), saver)
    assert saved(tmp_path) == [0, 1, 3, 4]
    assert "step 2 could not be written: Input/output error" in warnings[0]


def test_at_the_end_it_is_tried_once_more(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = {"left": 1}

    def fail(checkpoint: Checkpoint) -> None:
        if checkpoint.step == 4 and tries["left"]:
            tries["left"] -= 1
            raise OSError(errno.EROFS, "Read-only file system")

    Written(monkeypatch, fail)
    saver = Saver(tmp_path, SaverConfig(every_steps=4), warn=lambda text: None)
    fit(make_trainer(Small(), [saver], steps=4, rate=1e-3), saver)
    assert saved(tmp_path) == [0, 4]
    assert saver.trouble is None
    tries["left"] = 9
    saver = Saver(tmp_path / "other", SaverConfig(every_steps=4), warn=lambda text: None)
    fit(make_trainer(Small(), [saver], steps=4, rate=1e-3), saver)
    assert saved(tmp_path / "other") == [0]
    assert saver.trouble is not None
    assert "Read-only file system" in saver.trouble


def test_a_fault_of_ours_in_the_other_thread_is_not_hidden(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(checkpoint: Checkpoint) -> None:
        raise KeyError("ours")

    Written(monkeypatch, fail)
    saver = Saver(tmp_path, SaverConfig(every_steps=1), warn=pytest.fail)
    with pytest.raises(KeyError, match="ours"):
        make_trainer(Small(), [saver], steps=4, rate=1e-3).fit(batches)
