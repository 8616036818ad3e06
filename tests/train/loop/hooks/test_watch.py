from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from boxcrew.api import run_config
from boxcrew.evaluate.advice import overfitting_trend
from boxcrew.train.loop.hooks.watch import Watch
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train


def write_table(file: Path, *, labels_mean_something: bool) -> Path:
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(200, 6))
    labels = numbers[:, 0] > 0 if labels_mean_something else draw.random(200) > 0.5
    rows = [
        ",".join([*(f"{n:.3f}" for n in row), str(int(y))]) for row, y in zip(numbers, labels, strict=True)
    ]
    file.write_text("\n".join(["a,b,c,d,e,f,label", *rows]) + "\n")
    return file


@pytest.mark.parametrize("labels_mean_something", [False, True])
def test_a_network_that_learns_noise_by_heart_is_told_of(tmp_path: Path, labels_mean_something: bool) -> None:
    data = write_table(tmp_path / "data.csv", labels_mean_something=labels_mean_something)
    settings = {
        "data": str(data),
        "out": str(tmp_path / "run"),
        "steps": 200,
        "trial": False,
        "batch": 16,
        "net": {"name": "fc", "widths": [64], "dropout": 0.0},
        "optim": {"rate": 1e-2},
        "evaluation": {"every_epochs": 2, "metric": "val_loss"},
        "loader": {"workers": 0},
        "summaries": {"tensorboard": False},
    }
    outcome = train(run_config("fc", settings), Screen())
    findings = [
        advice["finding"] for advice in outcome.summary["advice"] if "no improvement in" in advice["finding"]
    ]
    assert bool(findings) is not labels_mean_something
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("advice: no improvement in") == len(findings)


@pytest.mark.parametrize(
    ("now", "evaluations", "is_said"), [(0.5, 3, True), (0.5, 2, False), (0.95, 9, False), (-1.0, 9, False)]
)
def test_it_is_said_after_three_evaluations_if_the_loss_fell(
    now: float, evaluations: int, is_said: bool
) -> None:
    advice = overfitting_trend(best_step=10, loss_then=1.0, loss_now=now, evaluations=evaluations)
    assert bool(advice) is is_said


def test_what_was_told_is_known_after_a_stop() -> None:
    (advice,) = overfitting_trend(best_step=10, loss_then=1.0, loss_now=0.5, evaluations=3)
    watch = Watch(Screen())
    watch.load_state({**watch.state(), "told": advice.to_json()})
    other = Watch(Screen())
    other.load_state(watch.state())
    assert other.advice == (advice,)
    other.load_state({})  # of a run from before there was a watch
    assert not other.advice


@pytest.mark.parametrize(("loss_shows_progress", "is_said"), [(False, True), (True, False)])
def test_phases_against_each_other_are_judged_by_evaluations_alone(
    loss_shows_progress: bool, is_said: bool
) -> None:
    """Their losses stay as they are."""
    watch = Watch(Screen())
    trainer: Any = SimpleNamespace(step=1, task=SimpleNamespace(loss_shows_progress=loss_shows_progress))
    report: Any = SimpleNamespace(fault=None, loss=1.0)
    for number in range(6):
        assert not watch.advice
        watch.after_step(trainer, report)
        watch.on_result(trainer, evaluation=Mock(), is_best=number == 0)
    assert bool(watch.advice) is is_said
    if is_said:
        assert watch.advice[0].finding == "no improvement in 5 evaluations since step 1"
