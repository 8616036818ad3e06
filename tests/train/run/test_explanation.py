"""The plan of a run with stages: one for each that trains, with its share of the limits, and the total."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from boxcrew.api import run_config
from boxcrew.core.errors import UsageError
from boxcrew.core.stage import Stage
from boxcrew.hardware.assumed import assumed_machine
from boxcrew.plan.plan import Plan
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import explain
from boxcrew.train.run.stages import stage_settings
from tests.helpers import staged_detector
from tests.helpers.staged_detector import NAME, RidgeHeadedConfig


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("boxcrew.hardware.speed.MOMENT", 0.001)
    with staged_detector.registered():
        yield


def config(tiny_set: Path, **settings: Any) -> RunConfig:
    fixed = {"data": str(tiny_set), "detector": {"tuned": True}, "steps": 400, "trial": False}
    return run_config(NAME, {**fixed, **settings})


def explained(config: RunConfig, machine: str | None = None) -> tuple[tuple[Plan, ...], dict[str, Any], str]:
    text = io.StringIO()
    screen = Screen(Console(file=text, width=200))
    explanation = explain(config, screen, None if machine is None else assumed_machine(machine))
    return explanation.plans, explanation.tree, text.getvalue()


def test_every_stage_that_trains_has_its_plan(tiny_set: Path) -> None:
    plans, tree, text = explained(config(tiny_set))
    assert tree.keys() == {"plans", "seconds"}
    features, ridge, tune = tree["plans"]
    assert [(each["stage"], each["kind"]) for each in tree["plans"]] == [
        ("1-features", "descend"),
        ("2-ridge", "solve"),
        ("3-tune", "descend"),
    ]
    assert ridge == {"stage": "2-ridge", "kind": "solve", "seconds": None, "plan": None}
    assert [Plan.of(each["plan"]) for each in (features, tune)] == list(plans)
    for each, plan in zip((features, tune), plans, strict=True):
        assert plan.predicted is not None
        assert each["seconds"] == plan.predicted.run.tree()
        assert each["parameters"]
        # Half of the steps of the run.
        assert plan.predicted.run.likely == pytest.approx(200 * plan.predicted.step.likely, rel=0.1)
    for limit in ("low", "likely", "high"):
        assert tree["seconds"][limit] == pytest.approx(features["seconds"][limit] + tune["seconds"][limit])
    # Only the heads learn in the last stage: fewer gradients.
    assert tune["workload"]["gradients"] < features["workload"]["gradients"]
    for line in ("stage 1 of 3: features\n", "stage 2 of 3: ridge\nplan: closed form, not predicted\n"):
        assert line in text
    assert text.count("who does what") == 2
    assert text.count("data: ") == 1, "it is opened once"
    table = text[text.index("expected time") :]
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["1-features", "2-ridge", "3-tune", "all"]
    assert "closed form, not predicted" in table


def test_for_a_machine_that_is_not_here(tiny_set: Path) -> None:
    plans, _, text = explained(config(tiny_set), "2x24GB-gpu, 16 cores, 64GB")
    assert "(assumed)" in text
    assert all(plan.devices[0].startswith("cuda") for plan in plans)


def test_a_stage_that_changes_the_network_is_planned_with_it(
    tiny_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = (
        Stage(name="small", fraction=0.5),
        Stage(name="large", fraction=0.25, changes={"detector": {"size": 128}}),
        Stage(name="again", fraction=0.25),
    )
    monkeypatch.setattr(RidgeHeadedConfig, "stages", lambda _: stages)
    _, tree, _ = explained(config(tiny_set))
    small, large, again = (each["workload"]["forward_operations"] for each in tree["plans"])
    assert small < large
    assert again == small


def test_a_run_without_stages_has_one_plan(tiny_set: Path) -> None:
    plans, tree, _ = explained(run_config(NAME, {"data": str(tiny_set), "detector": {"name": "ssdlite"}}))
    assert [plan.tree() for plan in plans] == [tree["plan"]]
    assert tree.keys() >= {"workload", "clones", "parameters", "stages"}
    assert not {"plans", "seconds"} & tree.keys()


def test_servers_are_refused_before_the_run(tiny_set: Path) -> None:
    deploy = {"strategy": "parameter_server", "replicas": 2}
    with pytest.raises(UsageError, match="a run with stages has no parameter servers"):
        explained(config(tiny_set, deploy=deploy))


def test_a_stage_has_its_share_of_every_limit(tiny_set: Path) -> None:
    tune = Stage(name="tune", fraction=0.25, changes={"optim": {"rate": 0.5}})
    own = stage_settings(config(tiny_set, steps=10, time="40s", goal="deadline:2h"), tune)
    assert (own.steps, own.epochs, own.time, own.goal.seconds) == (2, None, 10.0, 1800.0)
    assert own.optim.rate == 0.5
    assert stage_settings(config(tiny_set, steps=None, epochs=6.0), tune).epochs == 1.5
    assert stage_settings(config(tiny_set, goal="budget:8GB"), tune).goal.num_bytes == 8 * 10**9
    solved = config(tiny_set, goal="deadline:2h")
    assert stage_settings(solved, Stage(name="svm", kind="solve")) == solved
