"""Examining is done on what was held out of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.core.errors import DataError
from boxcrew.testing.made_examples import make_csv
from boxcrew.testing.untrained import untrained_run
from boxcrew.train.screen import Screen
from boxcrew.train.validate import ValConfig, validate


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make_csv(tmp_path)


@pytest.fixture
def run(tmp_path: Path, table: Path) -> Path:
    task = {"name": "classification", "net": {"name": "fc", "widths": [8]}}
    return untrained_run(tmp_path / "run", {"task": task, "data": str(table), "seed": 7})


def numbers(config: ValConfig) -> dict[str, float]:
    found: dict[str, float] = validate(config, Screen())["best"]["numbers"]
    return found


def test_data_that_is_named_is_split_with_the_seed_of_the_run(run: Path, table: Path) -> None:
    own = numbers(ValConfig(run=run))
    assert numbers(ValConfig(run=run, data=str(table))) == pytest.approx(own, rel=1e-6)
    weights = run / "weights" / "best.safetensors"
    assert numbers(ValConfig(run=weights, data=str(table))) == pytest.approx(own, rel=1e-6)


def test_another_seed_holds_out_others(run: Path, table: Path) -> None:
    stored = run / "config.yaml"
    own = numbers(ValConfig(run=run))
    stored.write_text(stored.read_text().replace("seed: 7", "seed: 8"))
    assert numbers(ValConfig(run=run, data=str(table)))["val_loss"] != pytest.approx(own["val_loss"])


def test_weights_alone_have_no_data(run: Path) -> None:
    with pytest.raises(DataError, match="has no data of its own"):
        validate(ValConfig(run=run / "weights" / "best.safetensors"), Screen())
