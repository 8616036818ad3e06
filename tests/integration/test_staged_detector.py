"""A detector whose class layer is solved: killed in any stage it ends bit-equal; it is used like others."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boxcrew import Detector
from boxcrew.api import run_config, train_run
from boxcrew.core.config import Tree
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume
from boxcrew.train.run.loading import load_task
from boxcrew.train.run.validate import ValConfig, validate
from tests.helpers.once import MakeOnce
from tests.helpers.runs import require_same_run
from tests.helpers.staged import training_with
from tests.helpers.staged_detector import NAME, RidgeHeaded, registered

InChild = Callable[..., int]
STAGES = ("1-features", "2-ridge", "3-tune")
WEIGHTS = ("weights/best.safetensors", "weights/last.safetensors")

FAULTS = {
    "in a step of stage 1": ('die_at_call(Trainer, "_update", 4)', "1-features"),
    "in the solve": ('die_at_call(toy.RidgeHeaded, "_examples", 3)', "2-ridge"),
    "before the first checkpoint of stage 3": ('die_at_call(Trainer, "_update", 7)', "3-tune"),
    "in a step of stage 3": ('die_at_call(Trainer, "_update", 11)', "3-tune"),
}
"""Where a process is killed -> how, and the stage that is then begun."""


@pytest.fixture(autouse=True, scope="module")
def _toy() -> Iterator[None]:
    with registered():
        yield


def settings(photos: Path, out: Path) -> Tree:
    return {"data": str(photos), "out": str(out), "detector": {"tuned": True}, "evaluation": {"batch": 4}}


@pytest.fixture(scope="module")
def complete(photos: Path, make_once: MakeOnce) -> Path:
    """A run of three stages that was never stopped."""

    def run(folder: Path) -> None:
        train_run(run_config(NAME, settings(photos, folder / "run")), Screen())

    return make_once("staged_detector", run) / "run"


@pytest.mark.parametrize("where", FAULTS)
def test_kill_in_a_stage(where: str, photos: Path, complete: Path, tmp_path: Path, in_child: InChild) -> None:
    fault, begun = FAULTS[where]
    out = tmp_path / "run"
    code = training_with(fault, helper="staged_detector")
    assert in_child(code, settings=settings(photos, out)) == -signal.SIGKILL
    assert (out / begun).is_dir()
    assert not (out / begun / "COMMIT").exists()
    resume(out, {}, Screen())
    for stage in STAGES:
        for name in WEIGHTS:
            assert (out / stage / name).read_bytes() == (complete / stage / name).read_bytes(), (stage, name)
    for stage in ("1-features", "3-tune"):
        require_same_run(out / stage, complete / stage)


def network(folder: Path) -> RidgeHeaded:
    network = load_task(folder, device="cpu").task.network
    assert isinstance(network, RidgeHeaded)
    return network


def test_what_was_solved_stays_in_the_stages_after_it(complete: Path) -> None:
    """Also numbers and flags that are no floats."""
    before, solved, tuned = (network(complete / stage) for stage in STAGES)
    assert (int(before.num_solved), bool(before.is_solved)) == (0, False)
    assert int(solved.num_solved) > 0
    assert bool(solved.is_solved)
    assert torch.equal(tuned.num_solved, solved.num_solved)
    assert torch.equal(tuned.is_solved, solved.is_solved)
    assert torch.equal(tuned.hidden.weight, before.hidden.weight)
    assert not torch.equal(solved.scores.weight, before.scores.weight)
    assert not torch.equal(tuned.scores.weight, solved.scores.weight)


def test_it_predicts_and_is_evaluated_like_any_other(complete: Path, photos: Path) -> None:
    image = next((photos / "JPEGImages").iterdir())
    last, published = (
        Detector.load(folder, device="cpu").predict(image, score=0.0)
        for folder in (complete / STAGES[-1], complete)
    )
    assert len(published.boxes) > 0
    np.testing.assert_array_equal(published.boxes, last.boxes)
    reports: dict[str, Any] = validate(ValConfig(run=complete, device="cpu", batch=4), Screen())
    stored = json.loads((complete / "evaluation.json").read_text())
    assert reports["best"]["numbers"]["AP"] == pytest.approx(stored["numbers"]["AP"], abs=1e-6)
