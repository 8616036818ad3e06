"""Studies of trainings with stages: closed forms follow the last step, and a pause comes before it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

from boxcrew.api import run_config
from boxcrew.core.errors import UsageError
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from boxcrew.tune.run_state import evaluations, newest_step, trained_seconds
from boxcrew.tune.settings import TuneConfig
from boxcrew.tune.study import tune
from tests.helpers import staged
from tests.helpers.forked import Forked, boxcrew
from tests.helpers.once import MakeOnce
from tests.tune.test_study import FORKED, events, require_finished

TOY = f"""
from tests.helpers import staged
context = staged.registered()
context.__enter__()
{FORKED}
"""
WORDS = (
    *("tune", "ridge_toy", "trials=4", "pruner=halving", "sampler=random", "trial=false"),
    *("steps=27", "task.whole=true", "optim.rate=1e-6", "search.optim.rate=1e-3..0.3:log"),
)


@pytest.fixture(scope="module")
def pictures(make_once: MakeOnce) -> Path:
    """Noisy pictures of two kinds, bright or dark, in three splits. Not to be changed."""

    def write(folder: Path) -> None:
        rng = np.random.default_rng(0)
        for split, count in (("train", 12), ("val", 8), ("test", 8)):
            for number in range(count):
                kind = number % 2
                image = rng.normal(80 + 90 * kind, 40, (12, 12, 3)).clip(0, 255).astype(np.uint8)
                file = folder / split / ("dark", "bright")[kind] / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                assert cv2.imwrite(str(file), image)

    return make_once("two_kinds", write)


def begin(pictures: Path, out: Path, home: Path) -> Forked:
    return boxcrew(*WORDS, f"data={pictures}", f"out={out}", first=TOY, cwd=home, HOME=str(home))


@pytest.fixture(scope="module")
def whole(make_once: MakeOnce, pictures: Path, home: Path) -> Path:
    """A study that was never stopped. Not to be changed."""

    def search(folder: Path) -> None:
        require_finished(begin(pictures, folder / "study", home))

    return make_once("staged_study", search) / "study"


def weights(run: Path) -> Sequence[bytes]:
    return [file.read_bytes() for file in sorted((run / "weights").glob("*.safetensors"))]


def test_trials_pause_within_their_first_stage_and_end_with_closed_forms(whole: Path) -> None:
    report = json.loads((whole / "report.json").read_text())
    complete = [trial for trial in report["trials"] if trial["state"] == "complete"]
    assert {0} < {trial["trial"] for trial in complete} < set(range(4))
    for trial in report["trials"]:
        run = Path(trial["run"])
        assert newest_step(run) == trial["steps"]
        assert [row["step"] for row in evaluations(run)] == [3, 9, 27][: len(trial["rungs"])]
        assert (run / "2-ridge").is_dir() == (trial["state"] == "complete")
        assert trial["seconds"] == pytest.approx(trained_seconds(run)) != 0
    for trial in complete:
        summary = json.loads((Path(trial["run"]) / "summary.json").read_text())
        assert summary["state"] == "finished"
        assert trial["value"] == summary["accuracy"] == summary["stages"][-1]["accuracy"]
    assert report["best"]["value"] == max(trial["value"] for trial in complete)


def test_the_best_settings_trained_again_are_solved_to_the_same(
    whole: Path, pictures: Path, tmp_path: Path
) -> None:
    best = json.loads((whole / "report.json").read_text())["best"]
    settings = {"recipe": f"study={whole}:best", "data": str(pictures), "out": tmp_path / "again"}
    with staged.registered():
        outcome = train(run_config(None, settings), Screen())
    assert outcome.summary["accuracy"] == best["value"]
    assert weights(outcome.folder) == weights(whole / "trials" / f"{best['trial']:04d}")


def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(
    whole: Path, pictures: Path, home: Path, tmp_path: Path
) -> None:
    hurt, moments = tmp_path / "hurt", random.Random(1)
    process = begin(pictures, hurt, home)
    for _ in range(3):
        while process.poll() is None and not (hurt / "study.json").is_file():
            time.sleep(0.01)
        time.sleep(moments.uniform(0.2, 1.2))
        process.kill()
        process.wait(30)
        words = ("tune", "resume", f"study={hurt}")
        process = boxcrew(*words, first=TOY, cwd=home, HOME=str(home))
    require_finished(process)
    assert events(hurt) == events(whole)
    for run in sorted((whole / "trials").iterdir()):
        assert weights(hurt / "trials" / run.name) == weights(run)


def test_several_stages_of_steps_are_trained_as_a_whole(pictures: Path, tmp_path: Path) -> None:
    settings = {"data": str(pictures), "task": {"tuned": True}}
    words = {"recipe": "ridge_toy", "trials": 2, "search": {"optim": {"rate": "1e-3..0.3:log"}}}
    with staged.registered(), pytest.raises(UsageError, match="is trained as a whole"):
        tune(TuneConfig.of({**words, "pruner": "halving", "settings": settings}), Screen())
