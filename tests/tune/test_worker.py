"""What a training of a study has done is read from its run, also if a signal came in between."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from boxcrew.api import run_config
from boxcrew.tasks.classification import ClassificationData
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.hooks.saver import Saver
from boxcrew.train.output.metrics import read_rows
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from boxcrew.tune.run_state import newest_step
from boxcrew.tune.worker import Work


def short_run(table: Path, out: Path) -> RunConfig:
    settings = {
        "data": str(table),
        "out": str(out),
        "steps": 9,
        "batch": 16,
        "net": {"widths": [16]},
        "loader": {"workers": 0},
        "evaluation": {"batch": 8, "at": [3 / 9, 1.0], "every_epochs": None},
        "saver": {"every_steps": 3},
        "trial": False,
    }
    return run_config("fc", settings)


def test_a_run_that_was_killed_at_its_end_has_each_line_once(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise InterruptedError

    config = short_run(table, tmp_path / "run")
    with monkeypatch.context() as patch:
        # The last line is written, but not the checkpoint that knows of it.
        patch.setattr(Saver, "end", die)
        with pytest.raises(InterruptedError):
            train(config, Screen())
    before = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in before if "rate" in row] == [9]
    train(config, Screen())
    assert read_rows(tmp_path / "run" / "metrics.jsonl") == before


def test_a_pause_without_its_evaluation_is_not_done(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = short_run(table, tmp_path / "run")
    work = Work(config=config.tree(), pause_at=3)
    original = ClassificationData.evaluate

    def evaluate(self: ClassificationData, *given: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return original(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationData, "evaluate", evaluate)
        train(config, Screen(), pause_at=3)
    assert newest_step(work.folder) == 3
    assert not work.is_done()

    train(config, Screen(), pause_at=3)
    assert newest_step(work.folder) == 3
    assert work.is_done()
    assert work.value("accuracy", higher_is_better=True) is not None

    train(config, Screen(), pause_at=6)
    rows = [row["step"] for row in read_rows(work.folder / "metrics.jsonl") if "rate" not in row]
    assert rows == [3], "an evaluation that was made up for is in the metrics once"
