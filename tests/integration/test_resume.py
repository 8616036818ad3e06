"""Runs that are stopped, killed or damaged, and go on as if they had not been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import safetensors.torch
import torch

from boxcrew.core.config import to_yaml
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Batch
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.evaluate.detection.predictor import Predictor
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints, newest_checkpoint, read_checkpoint
from boxcrew.train.loop.trainer import StepReport, Trainer
from boxcrew.train.output.metrics import read_rows
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume
from tests.helpers.forked import Forked, Job
from tests.helpers.runs import newest_tensors, require_equal, require_same_run, rows_without_times

Run = Callable[..., Outcome]
MakeConfig = Callable[..., RunConfig]
WriteSome = Callable[[Path, Callable[[Source], dict[str, Sequence[Record]]]], Path]
STEPS = 8


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes Ctrl-C arrive within the given step."""

    def at(step: int) -> None:
        original = Trainer._do_step

        def do_step(self: Trainer) -> StepReport:
            report = original(self)
            if self.step == step:
                signal.raise_signal(signal.SIGINT)
            return report

        monkeypatch.setattr(Trainer, "_do_step", do_step)

    return at


def files(folder: Path) -> dict[str, bytes]:
    contents = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: content for name, content in contents.items() if name != "train.log"}


@pytest.mark.parametrize(
    ("workers", "stops", "changes"),
    [
        ((0, 0), (5,), {}),
        ((0, 3), (5,), {}),
        ((3, 1), (5,), {}),
        (
            (0, 0, 0, 0),
            (1, 2, 6),
            {"optim": {"name": "adamw"}, "trainable": "detector.*heads*", "unfreeze": {0.5: "*"}},
        ),
    ],
    ids=["no worker", "0, then 3", "3, then 1", "often, while layers are frozen"],
)
def test_resumed_is_the_same_as_never_stopped(
    photos: Path,
    whole: Path,
    tmp_path: Path,
    interrupt_after: Callable[[int], None],
    workers: tuple[int, ...],
    stops: tuple[int, ...],
    changes: dict[str, object],
    run: Run,
) -> None:
    """`workers` of the loader before each stop, and after the last."""
    shown = {"summaries": {"tensorboard": True}}
    unstopped = whole  # pictures and the graph make no difference
    if changes:
        unstopped = tmp_path / "unstopped"
        run(photos, unstopped, **shown, **changes)
    out = tmp_path / "stopped"
    for step, num in zip(stops, workers, strict=False):
        interrupt_after(step)
        if out.exists():
            outcome = resume(out, {"loader": {"workers": num}}, Screen())
        else:
            outcome = run(photos, out, loader={"workers": num}, **shown, **changes)
        assert outcome.interrupted
        assert json.loads((out / "status.json").read_text())["state"] == "interrupted"
        assert outcome.summary["steps"] == step
    outcome = resume(out, {"loader": {"workers": workers[-1]}}, Screen())
    assert not outcome.interrupted
    assert outcome.summary["state"] == "finished"
    require_same_run(unstopped, out)
    for name in ("best", "last"):
        files = [run / "weights" / f"{name}.safetensors" for run in (unstopped, out)]
        require_equal(*(safetensors.torch.load_file(file) for file in files))
    # Of the steps of all processes; the time of training has the examinations in it as well.
    assert outcome.summary["images_per_second"] > STEPS * 4 / outcome.summary["train_seconds"]


def test_a_finished_run_says_so_and_stays_as_it_is(photos: Path, whole: Path, run: Run) -> None:
    before = files(whole)
    message = f"already finished at step {STEPS}"
    with pytest.raises(UsageError, match=message) as caught:
        resume(whole, {}, Screen())
    assert "epochs=" in caught.value.advice
    with pytest.raises(UsageError, match=message):
        run(photos, whole, summaries={"tensorboard": True, "images": 2, "graph": True})
    assert files(whole) == before


def test_a_finished_run_can_be_made_longer(photos: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "run"
    run(photos, out, steps=2)
    assert resume(out, {"steps": 4}, Screen()).summary["steps"] == 4
    assert [p.name for p in list_checkpoints(out / "checkpoints")] == ["00000003", "00000004"]


def test_that_the_data_has_changed_is_said(photos: Path, tmp_path: Path, run: Run) -> None:
    data, out = tmp_path / "data", tmp_path / "run"
    shutil.copytree(photos, data)
    run(data, out, steps=2)
    message = "the data has changed since this run began"
    resume(out, {"steps": 3}, Screen())
    assert message not in (out / "train.log").read_text()
    split = data / "ImageSets" / "Main" / "train.txt"
    split.write_text("\n".join(split.read_text().splitlines()[1:]) + "\n")
    resume(out, {"steps": 4}, Screen())
    assert message in (out / "train.log").read_text()


def test_killed_before_its_summary_a_run_still_gets_one(photos: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "run"
    run(photos, out, steps=2)
    last = (out / "weights" / "last.safetensors").read_bytes()
    (out / "weights" / "last.safetensors").unlink()
    (out / "summary.json").unlink()
    assert resume(out, {}, Screen()).summary["state"] == "finished"
    assert (out / "weights" / "last.safetensors").read_bytes() == last


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"detector": {"backbone": "mobilenetv3_large_100"}}, ModelError, "does not fit"),
        ({"optim": {"name": "adamw"}}, UsageError, "SGD, not AdamW"),
    ],
)
def test_a_checkpoint_of_another_run_must_fit(
    photos: Path,
    whole: Path,
    tmp_path: Path,
    changes: dict[str, object],
    error: type[Exception],
    message: str,
    run: Run,
) -> None:
    before = files(whole)
    with pytest.raises(error, match=message):
        run(photos, tmp_path / "run", steps=20, init={"kind": "resume", "run": str(whole)}, **changes)
    assert files(whole) == before
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_usable_checkpoint_is_not_written_over(
    photos: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "run"
    run(photos, out, steps=2)
    for place in list_checkpoints(out / "checkpoints"):
        (place / "state.json").write_text("{}")
    before = files(out)
    with pytest.raises(ModelError, match="none of its checkpoints can be used"):
        run(photos, out)
    with pytest.raises(ModelError, match="none of its checkpoints can be used"):
        resume(out, {}, Screen())
    assert files(out) == before
    for place in list_checkpoints(out / "checkpoints"):
        (place / "COMMIT").unlink()
    with pytest.raises(UsageError, match="has weights, but no checkpoint"):
        run(photos, out)
    with pytest.raises(ModelError, match="no finished checkpoint"):
        resume(out, {}, Screen())


def test_a_damaged_checkpoint_is_passed_over_and_named(photos: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "run"
    run(photos, out, steps=4)
    whole_state = newest_tensors(out)
    newest = list_checkpoints(out / "checkpoints")[-1]
    content = bytearray((newest / "tensors.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "tensors.safetensors").write_bytes(bytes(content))
    resume(out, {}, Screen())
    assert f"{newest}/tensors.safetensors: damaged" in (out / "train.log").read_text()
    require_equal(newest_tensors(out), whole_state)


def test_a_looked_at_frozen_network_keeps_its_statistics(photos: Path, tmp_path: Path, run: Run) -> None:
    """Evaluation turns training mode off and on again: frozen BatchNorms must stay off."""
    out = tmp_path / "run"
    settings: dict[str, object] = {"optim": {"ema": 0}, "trainable": "detector.box_heads.*"}
    run(photos, out, steps=1, **settings)
    first = newest_tensors(out)
    resume(out, {"steps": 6, "evaluation": {"every_epochs": 0.5}}, Screen())
    last = newest_tensors(out)
    for name, value in first.items():
        if name.startswith("task/detector.backbone."):
            assert torch.equal(value, last[name]), name
    moved = [n for n in first if "box_heads" in n and "running_mean" in n and n.startswith("task/")]
    assert moved
    assert all(not torch.equal(first[n], last[n]) for n in moved)


TRAIN = """
import sys
from pathlib import Path
from boxcrew.core.config import read_yaml
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
sys.exit(130 if train(RunConfig.of(read_yaml(Path(given["settings"]))), Screen()).interrupted else 0)
"""


def start(settings: RunConfig, folder: Path, home: Path) -> Forked:
    """Train in a process with a session of its own."""
    path = folder / "settings.yaml"
    path.write_text(to_yaml(settings))
    return Forked(Job(code=TRAIN, given={"settings": str(path)}, environment={"HOME": str(home)}))


def wait_for(condition: Callable[[], bool], process: Forked, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < end
        time.sleep(0.01)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "terminate the group"])
def test_a_process_that_is_ended_goes_on_where_it_was(
    photos: Path, home: Path, tmp_path: Path, number: signal.Signals, run: Run, config: MakeConfig
) -> None:
    """To the same weights, bit for bit. Its loader process, which gets the SIGTERM too and the SIGKILL not,
    is gone with it, and it has 30 s to leave.
    """
    steady: dict[str, object] = {
        "schedule": {"name": "fixed", "warmup": 0},  # that no step depends on how many there will be
        "evaluation": {"every_epochs": 10**6},
        "saver": {"every_steps": 1},
        "deploy": {"memory_format": "channels_last"},  # that both are computed alike
        "trial": False,  # a run of so many steps would spend up to 20 s on one
    }
    out = tmp_path / "run"
    process = start(config(photos, out, steps=10**5, loader={"workers": 1}, **steady), tmp_path, home)
    try:
        wait_for(lambda: len(list_checkpoints(out / "checkpoints")) > 1, process)
        loaders = psutil.Process(process.pid).children(recursive=True)
        assert loaders
        if number == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, number)
        code = process.wait(timeout=30)
        end = time.monotonic() + 5
        while any(is_alive(loader) for loader in loaders):
            assert time.monotonic() < end, "a loader process outlived its parent"
            time.sleep(0.02)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == (130 if number == signal.SIGTERM else -number)
    steps = read_checkpoint(list_checkpoints(out / "checkpoints")[-1]).step + 2
    resume(out, {"steps": steps}, Screen())
    unstopped = tmp_path / "unstopped"
    run(photos, unstopped, steps=steps, **steady)
    require_equal(newest_tensors(out), newest_tensors(unstopped))
    assert rows_without_times(out) == rows_without_times(unstopped)


def test_an_examination_that_an_interrupt_kept_from_happening_is_made_up_for(
    photos: Path, whole: Path, tmp_path: Path, interrupt_after: Callable[[int], None], run: Run
) -> None:
    due = next(row["step"] for row in read_rows(whole / "metrics.jsonl") if "AP" in row)
    interrupt_after(due)
    out = tmp_path / "run"
    run(photos, out)
    assert not [row for row in read_rows(out / "metrics.jsonl") if "AP" in row]
    resume(out, {}, Screen())
    assert rows_without_times(out) == rows_without_times(whole)


def test_an_interrupt_breaks_off_an_examination(
    photos: Path, whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may take much longer than 30 s; it is made up for."""
    original, calls = Predictor.detect, iter(range(100))

    def detect(self: Predictor, *given: Any) -> Any:
        if next(calls) == 1:
            signal.raise_signal(signal.SIGTERM)
        return original(self, *given)

    monkeypatch.setattr(Predictor, "detect", detect)
    out = tmp_path / "run"
    assert run(photos, out, evaluation={"batch": 1}).interrupted
    assert next(calls) == 2, "the third image was not looked at"
    assert not [row for row in read_rows(out / "metrics.jsonl") if "AP" in row]
    resume(out, {}, Screen())
    require_same_run(out, whole)


@pytest.mark.parametrize("step", [4, 8])
def test_a_second_ctrl_c_stops_at_once_without_harm(
    photos: Path, whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """In the middle of a step, with a checkpoint just being written."""
    original = Trainer._compute

    def compute(self: Trainer, batch: Batch, phase: str) -> dict[str, float]:
        if self.step == step - 1:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return original(self, batch, phase)

    monkeypatch.setattr(Trainer, "_compute", compute)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(photos, out, saver={"every_steps": 1})
    newest, complaints = newest_checkpoint(out / "checkpoints")
    assert newest is not None
    assert (newest.step, complaints) == (step - 1, []), "what was being written was finished"
    assert not (out / "lock").exists()
    resume(out, {}, Screen())
    require_same_run(out, whole)


def test_a_run_can_go_on_in_another_directory(photos: Path, whole: Path, tmp_path: Path, run: Run) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(photos, first, steps=5, schedule={"name": "fixed", "warmup": 0.0})
    before = files(first)
    longer = {"steps": 8, "schedule": {"name": "fixed", "warmup": 0.0}}
    outcome = run(photos, second, init={"kind": "resume", "run": str(first)}, **longer)
    unstopped = run(photos, tmp_path / "unstopped", **longer)
    require_equal(newest_tensors(unstopped.folder), newest_tensors(second))
    assert files(first) == before
    assert outcome.summary["steps"] == 8
    assert (second / "weights" / "best.safetensors").is_file()
    with pytest.raises(UsageError, match="not a run directory"):
        run(photos, tmp_path / "third", init={"kind": "resume", "run": str(tmp_path / "nowhere")})
