"""A run of a detector that chooses what to learn from is the same when resumed, and on clones. Its
inputs have several sizes and shapes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boxcrew.train.config import RunConfig
from boxcrew.train.loop.trainer import StepReport, Trainer
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume, train
from tests.helpers import two_headed
from tests.helpers.runs import require_same_run
from tests.helpers.shapes import write_shapes

Run = Callable[..., Outcome]
STEPS, BATCH, STOP = 6, 8, 3
SIZE = "64,80:112"  # one of two short sides for each step, and inputs that are not square


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with two_headed.registered():
        yield


@pytest.fixture
def learn(tmp_path: Path) -> Run:
    """`(out, **changes)`"""
    photos = write_shapes(tmp_path / "photos")

    def start(out: Path, **changes: object) -> Outcome:
        settings = {
            "data": str(photos),
            "out": str(out),
            "steps": STEPS,
            "batch": BATCH,
            "detector": {"name": two_headed.NAME, "size": SIZE},
            "loader": {"workers": 0},
            "optim": {"name": "momentum", "rate": 0.01},
            "summaries": {"every_steps": 2, "tensorboard": False, "images": 0},
        }
        return train(RunConfig.of(settings | changes), Screen())

    return start


def test_a_resumed_run_chooses_the_same_anchors(
    learn: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_headed.recorded() as unstopped:
        learn(tmp_path / "unstopped")
    assert len(unstopped) == STEPS * BATCH, "every sample of every epoch has a draw of its own"
    original = Trainer._do_step

    def do_step(self: Trainer) -> StepReport:
        report = original(self)
        if self.step == STOP:
            signal.raise_signal(signal.SIGINT)
        return report

    monkeypatch.setattr(Trainer, "_do_step", do_step)
    with two_headed.recorded() as before:
        assert learn(tmp_path / "stopped").interrupted
    assert len(before) == STOP * BATCH
    with two_headed.recorded() as after:
        assert not resume(tmp_path / "stopped", {"loader": {"workers": 1}}, Screen()).interrupted
    assert len(after) == (STEPS - STOP) * BATCH
    assert before | after == unstopped
    require_same_run(tmp_path / "unstopped", tmp_path / "stopped")


def test_clones_choose_the_same_anchors(learn: Run, tmp_path: Path) -> None:
    with two_headed.recorded() as alone:
        learn(tmp_path / "alone", summaries={"graph": True})
    with two_headed.recorded() as on_clones:
        learn(tmp_path / "clones", deploy={"clones": 2, "clone_on_cpu": True, "shares": [5, 3]})
    assert on_clones == alone
