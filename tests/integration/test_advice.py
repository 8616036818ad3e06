"""What a run is told about its data and its training: on the screen a few lines, in its report all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew.evaluate.advice import MAX_LINES, MAX_LINES_BEFORE
from boxcrew.recipes import RECIPES
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train


def write_bad_table(folder: Path) -> Path:
    """Values missing, one class in nine times as many rows as the other, and labels that are chance: a
    network of many parameters learns it by heart.
    """
    rng = np.random.default_rng(0)
    rows = ["height,width,depth,kind"]
    for index, numbers in enumerate(rng.normal(size=(90, 3)).round(3).tolist()):
        values = [("" if index % 15 == place else str(number)) for place, number in enumerate(numbers)]
        rows.append(",".join([*values, "elm" if index % 10 == 0 else "oak"]))
    file = folder / "trees.csv"
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advice")
    settings: dict[str, Any] = {
        "data": str(write_bad_table(folder)),
        "out": str(folder / "run"),
        "steps": 250,
        "trial": False,
        "batch": 32,
        "net": {"dropout": 0},
        "schedule": "fixed",
        "evaluation": {"every_epochs": 25},
        "summaries": {"tensorboard": False},
    }
    train(RECIPES.get("fc")().changed(settings), Screen())
    return folder / "run"


def causes(file: Path) -> list[str]:
    return [item["cause"] for item in json.loads(file.read_text())["advice"]]


def lines(run: Path) -> list[str]:
    text = (run / "train.log").read_text()
    return [line.partition("advice: ")[2] for line in text.splitlines() if "advice: " in line]


def test_all_causes_stand_in_the_report(run: Path) -> None:
    before = causes(run / "data_report.json")
    assert set(before) == {"missing features", "imbalance", "too complex"}
    after = causes(run / "summary.json")
    assert after[: len(before)] == before
    assert "too complex" in after[len(before) :]


def test_the_screen_has_the_worst_of_it(run: Path) -> None:
    printed = lines(run)
    assert len(printed) == MAX_LINES
    known = [
        f"{item['finding']}: {item['remedy']}"
        for item in json.loads((run / "summary.json").read_text())["advice"]
    ]
    assert printed[:MAX_LINES_BEFORE] == known[:MAX_LINES_BEFORE]
    assert printed[MAX_LINES_BEFORE] in known[len(causes(run / "data_report.json")) :]
