"""Steps that go wrong. Each test says what is injected and what must hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Batch, Losses
from boxcrew.tasks.detection import DetectionTask
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.metrics import read_rows
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume
from tests.helpers.runs import newest_tensors, require_equal, require_same_run

Run = Callable[..., Outcome]
Spoil = Callable[[Callable[[int, Batch, Losses], Losses]], None]
STEPS = 8


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """`(change)`: lets `change(number of the call, batch, losses)` have the last word on losses. Calls of the
    plan, which goes through a step on tensors without data, do not count.
    """
    original = DetectionTask.forward

    def start(change: Callable[[int, Batch, Losses], Losses]) -> None:
        calls = iter(range(10**6))

        def forward(self: DetectionTask, batch: Batch, phase: str = "train") -> Losses:
            losses = original(self, batch, phase)
            return losses if batch.inputs.is_meta else change(next(calls), batch, losses)

        monkeypatch.setattr(DetectionTask, "forward", forward)

    return start


def times(losses: Losses, factor: float) -> Losses:
    return replace(losses, terms={name: value * factor for name, value in losses.terms.items()})


@pytest.mark.parametrize(
    ("factor", "said"), [(float("nan"), "the loss is nan"), (1e6, "times the usual")], ids=["nan", "spike"]
)
def test_one_bad_step(photos: Path, tmp_path: Path, run: Run, spoil: Spoil, factor: float, said: str) -> None:
    """The loss of one step is no number, or a million times the usual -> its images are named, the step is
    left out, and the run finishes with sound numbers.
    """
    named: list[str] = []

    def change(call: int, batch: Batch, losses: Losses) -> Losses:
        if call != 5:
            return losses
        named.extend(batch.keys)
        return times(losses, factor)

    spoil(change)
    out = tmp_path / "run"
    outcome = run(photos, out, guard={"window": 3})
    assert (outcome.summary["state"], outcome.summary["steps"]) == ("finished", STEPS)
    assert (outcome.summary["skipped_steps"], outcome.summary["rollbacks"]) == (1, 0)
    line = next(x for x in (out / "train.log").read_text().splitlines() if "step 6 is skipped" in x)
    assert said in line
    assert len(named) == 4
    assert all(name in line for name in named)
    assert all(value.isfinite().all() for value in newest_tensors(out).values())
    assert [row["step"] for row in read_rows(out / "metrics.jsonl") if "loss" in row] == [3, 6, 8]


def test_a_bad_stretch(photos: Path, tmp_path: Path, run: Run, spoil: Spoil) -> None:
    """Five steps in a row fail, once -> the run goes back to its checkpoint and on at half the rate; no
    number is written twice, in no file.
    """
    spoil(lambda call, batch, losses: times(losses, float("nan") if 4 <= call < 9 else 1))
    out = tmp_path / "run"
    settings: dict[str, object] = {
        "steps": 12,
        "schedule": {"name": "fixed", "warmup": 0},
        "evaluation": {"every_epochs": 4},
        "summaries": {"tensorboard": True},
    }
    outcome = run(photos, out, **settings)
    assert (outcome.summary["skipped_steps"], outcome.summary["rollbacks"]) == (5, 1)
    assert "back to step 3" in (out / "train.log").read_text()
    rows = read_rows(out / "metrics.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [3, 6, 9, 12]
    assert [row["rate"] for row in rows if "loss" in row] == [0.01, 0.005, 0.005, 0.005]
    evaluated = [row["step"] for row in rows if "AP" in row]
    assert evaluated == sorted(set(evaluated))
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [3, 6, 9, 12]
    assert [int(p.name) for p in list_checkpoints(out / "checkpoints")] == [9, 12]


def test_no_good_step_any_more(photos: Path, tmp_path: Path, run: Run, spoil: Spoil) -> None:
    """From some step on every loss is NaN -> back three times, further where that did not help, then exit
    code 1, all of it in the log and the summary; a checkpoint is there, and once the cause is gone the run
    can go on from it.
    """
    broken = {"is": True}
    spoil(lambda call, batch, losses: times(losses, float("nan") if call >= 4 and broken["is"] else 1))
    out = tmp_path / "run"
    with pytest.raises(BoxcrewError, match="2 steps in a row failed, after 3 rollbacks") as caught:
        run(photos, out, guard={"failures": 2})
    assert caught.value.exit_code == 1
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["state"], summary["rollbacks"]) == ("failed", 3)
    assert summary["skipped_steps"] == 8
    assert "after 3 rollbacks" in summary["stopped_because"]
    assert json.loads((out / "status.json").read_text())["state"] == "failed"
    log = (out / "train.log").read_text()
    assert log.count("is skipped: the loss is nan") == 8
    assert [log.count(f"back to step {step}") for step in (3, 0)] == [1, 2]
    assert "failed: step" in log
    assert [int(p.name) for p in list_checkpoints(out / "checkpoints")] == [0]
    assert not (out / "lock").exists()
    broken["is"] = False
    assert resume(out, {}, Screen()).summary["state"] == "finished"


def test_memory_runs_out(photos: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch runs out of memory on more than two samples -> the step is done again in two parts, and all after
    it, also after a stop; bit-equal to a run that computed in two parts from the start. Said once.
    """
    original = DetectionTask.forward
    sizes: list[int] = []

    def forward(self: DetectionTask, batch: Batch, phase: str = "train") -> Losses:
        sizes.append(len(batch))
        losses = original(self, batch, phase)  # whose forward has moved the statistics of BatchNorms already
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return losses

    out, wanted = tmp_path / "run", tmp_path / "wanted"
    run(photos, wanted, deploy={"accumulation": 2})
    monkeypatch.setattr(DetectionTask, "forward", forward)
    steady = {"schedule": {"name": "cosine"}}
    run(photos, out, **steady)
    assert sizes == [4, *[2, 2] * STEPS]
    require_same_run(out, wanted)
    log = (out / "train.log").read_text()
    assert log.count("memory ran out: steps are computed in 2 micro-batches") == 1
    sizes.clear()
    resume(out, {"steps": STEPS + 1}, Screen())
    assert sizes == [2, 2]


def test_a_bad_step_and_a_stop(
    photos: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same image spoils every step that it is in, and the run is stopped between two of them -> bit-equal
    to the run that was not stopped, with as many steps left out.
    """
    original = DetectionTask.forward
    bad = sorted((photos / "JPEGImages").iterdir())[0].stem

    def forward(self: DetectionTask, batch: Batch, phase: str = "train") -> Losses:
        losses = original(self, batch, phase)
        is_bad = any(bad in key for key in batch.keys)
        return times(losses, float("inf")) if is_bad else losses

    monkeypatch.setattr(DetectionTask, "forward", forward)
    fixed = {"schedule": {"name": "fixed", "warmup": 0}, "evaluation": {"every_epochs": 100}}
    unstopped, stopped = tmp_path / "unstopped", tmp_path / "stopped"
    first = run(photos, unstopped, guard={"failures": 50}, **fixed)
    run(photos, stopped, guard={"failures": 50}, steps=5, **fixed)
    second = resume(stopped, {"steps": STEPS}, Screen())
    assert 1 < first.summary["skipped_steps"] < STEPS
    assert first.summary["skipped_steps"] == second.summary["skipped_steps"]
    require_equal(newest_tensors(unstopped), newest_tensors(stopped))
