"""A table that trains in a moment, and a study of it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from boxcrew.tune.choose import choose_space
from boxcrew.tune.record import StudyRecord
from tests.helpers.once import MakeOnce

SPACE = {"optim": {"rate": "1e-4..1e-1:log"}, "net": {"dropout": "0..0.5"}}


@pytest.fixture(scope="session")
def table(make_once: MakeOnce) -> Path:
    """Rows of three kinds that overlap, in three splits. Not to be changed."""

    def write(folder: Path) -> None:
        rng = np.random.default_rng(0)
        for split, count in (("train", 180), ("val", 30), ("test", 30)):
            rows = ["a,b,c,kind"]
            for index in range(count):
                kind = index % 3
                a, b, c = rng.normal((kind, -kind, 0), (1.0, 1.5, 1.0))
                rows.append(f"{a:.3f},{b:.3f},{c:.3f},{'xyz'[kind]}")
            (folder / f"{split}.csv").write_text("\n".join(rows) + "\n")

    return make_once("kinds", write)


@pytest.fixture(scope="session")
def record() -> StudyRecord:
    """A study of a perceptron, of which nothing is trained."""
    from boxcrew.api import run_config

    base = run_config("fc", {"data": "nowhere.csv", "steps": 27})
    return StudyRecord(
        identity="that",
        base=base.tree(),
        given=base.tree(),
        space=choose_space(SPACE, base, Mock()),
        sampler="tpe",
        pruner="halving",
        metric="accuracy",
        higher_is_better=True,
        rungs=(3, 9, 27),
        seed=0,
        workers=1,
        devices=(),
        trials=None,
        time=None,
        storage=None,
        data_digest="",
        step_seconds=None,
        machine={},
        base_cost=None,
        versions={},
    )
