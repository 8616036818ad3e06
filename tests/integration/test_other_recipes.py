"""Networks that find no boxes, by the whole command: in one process with two clones, or in two processes;
then judged. That any strategy learns the same is tested with their tasks, strategy by strategy.

They learn from a few pictures, or from the text that is embedded; the run has 2 steps.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.forked import boxcrew
from tests.helpers.made_examples import make_folder

WORDS = (
    "steps=2",
    "batch=6",
    "out=run",
    "trial=false",
    "loader.workers=0",
    "deploy.threads=1",
    "summaries.tensorboard=false",
    "summaries.images=0",
    "evaluation.every_epochs=1000",
)
DEPLOYMENTS = {
    "clones": ("deploy.clones=2", "deploy.clone_on_cpu=true", "deploy.shares=4,2"),
    "ddp": ("deploy.strategy=ddp", "deploy.replicas=2"),
}
JUDGED_BY = {"fc": "accuracy", "cnn": "accuracy", "rnn": "perplexity", "gan": "frechet"}


UNDRAWN = """
from boxcrew.api import runs
runs._draw = lambda outcome: None
"""


def said(home: Path, place: Path, *words: str) -> str:
    process = boxcrew(*words, first=UNDRAWN, cwd=place, HOME=str(home))
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize(
    ("recipe", "deployment"), [("fc", "ddp"), ("cnn", "clones"), ("rnn", "ddp"), ("gan", "clones")]
)
def test_it_is_trained_and_judged(recipe: str, deployment: str, home: Path, tmp_path: Path) -> None:
    pictures = make_folder(tmp_path / "pictures")
    place = pictures / "bowl" if recipe == "gan" else pictures  # without classes to learn what judges it
    data = ("task.length=16",) if recipe == "rnn" else (f"data={place}", "size=28")
    said(home, tmp_path, "train", recipe, *data, *WORDS, *DEPLOYMENTS[deployment])
    trained = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (trained["state"], trained["steps"]) == ("finished", 2)
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["strategy"] == deployment
    evaluated = json.loads(said(home, tmp_path, "val", "run=run", "--json"))["best"]["numbers"]
    metric = JUDGED_BY[recipe]
    assert evaluated[metric] == pytest.approx(trained[metric], rel=1e-4)
