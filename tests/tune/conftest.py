"""A table that trains in a moment, and a study of it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from bench.tune_kills import write_kinds
from boxcrew.tune.choose import choose_space
from boxcrew.tune.record import StudyRecord
from tests.helpers.once import MakeOnce

SPACE = {"optim": {"rate": "1e-4..1e-1:log"}, "net": {"dropout": "0..0.5"}}


@pytest.fixture(scope="session")
def table(make_once: MakeOnce) -> Path:
    """Rows of three kinds that overlap, in three splits. Not to be changed."""

    return make_once("kinds", write_kinds)


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
