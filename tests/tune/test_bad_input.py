"""Studies that cannot be: one clear error each, and nothing is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.train.output.screen import Screen
from boxcrew.tune.ledger import Ledger
from boxcrew.tune.settings import TuneConfig
from boxcrew.tune.study import resume_study, tune

SEARCH = {"optim": {"rate": "1e-4..1e-1:log"}}


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxcrew.tune.study.preload", lambda: None)


def begin(table: Path, out: Path, /, **changes: Any) -> None:
    settings = {"data": str(table), "steps": 27, "batch": 16, **changes.pop("settings", {})}
    words = {"recipe": "fc", "trials": 3, "search": SEARCH, "out": out, "settings": settings}
    tune(TuneConfig.of({**words, **changes}), Screen())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"trials": None}, "time= is missing"),
        (
            {"search": {"optim": {"rte": "1..2"}}},
            r"search\.optim\.rte: no such setting; did you mean 'optim\.rate'",
        ),
        ({"search": "optimiser"}, "no such space; did you mean 'optimizer'"),
        ({"search": {"seed": "1,2"}}, "may not be searched"),
        ({"search": {"transforms": {"flip": "0,0.5"}}}, "no such setting of this recipe"),
        (
            {"search": {"augment": {"flip": "0,0.5"}}},
            r"augment\.flip=0\.5: for images; the data holds tables",
        ),
        ({"search": {"optim": {"name": "sgd,ftrl", "momentum": "0..0.9"}}}, "has no effect with optim.name="),
        ({"sampler": "grid"}, "a grid needs values"),
        ({"sampler": "best"}, "sampler: input should be 'tpe', 'cma', 'random' or 'grid'"),
        ({"settings": {"deploy": {"replicas": 2}}}, "trained in one process"),
        ({"settings": {"data": "nowhere"}}, "nowhere"),
        ({"storage": "sqlite:////nowhere/such/study.db"}, "cannot be reached"),
        ({"storage": "nonsense"}, "not a storage of Optuna"),
    ],
)
def test_what_cannot_be_begun(table: Path, tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    out = tmp_path / "study"
    with pytest.raises(BoxcrewError, match=problem):
        begin(table, out, **changes)
    assert not out.exists()


def test_a_directory_with_anything_in_it_is_left_alone(table: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        begin(table, tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(UsageError, match="a study that has begun"):
        begin(table, tmp_path)
    with pytest.raises(UsageError, match="identity: must be given"):
        resume_study(tmp_path, Screen())
    with pytest.raises(UsageError, match="not a study"):
        resume_study(tmp_path / "nowhere", Screen())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "study.json"]


def test_in_no_time_nothing_is_finished(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    with pytest.raises(BoxcrewError, match="no trial was finished in this time"):
        begin(table, out, time=1e-6, trials=None)
    with pytest.raises(BoxcrewError, match="no trial was finished in this time"):  # nor later
        resume_study(out, Screen())


def test_a_study_goes_on_with_its_own_data_only(table: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "study"
    shutil.copytree(table, data)
    with pytest.raises(BoxcrewError, match="in this time"):
        begin(data, out, time=1e-6, trials=None)
    rows = (data / "train.csv").read_text().splitlines()
    (data / "train.csv").write_text("\n".join(rows[:-3]) + "\n")
    with pytest.raises(UsageError, match="has changed since this study began"):
        resume_study(out, Screen())


def test_a_damaged_ledger_is_named(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    with pytest.raises(BoxcrewError, match="in this time"):
        begin(table, out, time=1e-6, trials=None)
    events = out / "events.jsonl"
    whole = events.read_text()
    events.write_text(whole + '{"event": "ask')  # cut off by a kill: it has had no effect
    assert Ledger.read(out).trials == []
    assert events.read_text() != whole, "a report does not write into a study that may be going on"
    with pytest.raises(BoxcrewError, match="in this time"):
        resume_study(out, Screen())
    assert events.read_text() == whole
    events.write_text(json.dumps({"event": "ended", "job": 3, "at": 0.0}) + "\n" + whole)
    with pytest.raises(BoxcrewError, match="line 1 is damaged"):
        resume_study(out, Screen())
