"""A job that is started again goes on in its directory, also without `out=`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from boxcrew.api import run_config
from boxcrew.core.config import parse_words
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from boxcrew.train.run.directory import JOB, choose_folder
from boxcrew.train.run.job import LauncherJob, recorded
from tests.helpers import forked
from tests.helpers.forked import Forked
from tests.helpers.tiny import TINY

CONFIG = RunConfig.of({"steps": 3})
QUICK = ("loader.workers=0", "summaries.tensorboard=false", "summaries.images=0", "deploy.threads=1")
DEFAULT = Path("detect/train")
TORCHRUN = {"TORCHELASTIC_RUN_ID": "twelve"}
REQUEUED = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"}


def begin(environment: dict[str, str], folder: Path, config: RunConfig = CONFIG) -> None:
    """Leave what a job leaves that was killed in its first step."""
    folder.mkdir(parents=True)
    with recorded(LauncherJob.of(config, environment), folder):
        for name in ("config.yaml", "plan.json"):
            (folder / name).write_text("{}")


def goes_on_in(environment: dict[str, str], config: RunConfig = CONFIG) -> Path | None:
    job = LauncherJob.of(config, environment)
    return job.folder(DEFAULT) if job is not None else None


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("environment", [TORCHRUN, {"TORCHELASTIC_RUN_ID": "none"}, REQUEUED])
def test_a_job_is_found_again(environment: dict[str, str]) -> None:
    """Also behind another's; not with other settings, and not by another job."""
    begin({"TORCHELASTIC_RUN_ID": "other"}, Path("runs/detect/train"))
    begin(environment, Path("runs/detect/train-2"))
    assert goes_on_in(environment) == Path("runs/detect/train-2")
    assert goes_on_in(environment, RunConfig.of({"steps": 4})) is None
    assert goes_on_in({"TORCHELASTIC_RUN_ID": "third"}) is None


def test_other_starts_are_no_restarts() -> None:
    first = {name: value for name, value in REQUEUED.items() if name != "SLURM_RESTART_COUNT"}
    begin(first, Path("runs/detect/train"))
    assert goes_on_in(first) is None, "typed twice in one session of a shell"
    assert goes_on_in(REQUEUED) == Path("runs/detect/train")
    assert LauncherJob.of(CONFIG, {}) is None


def test_our_own_launcher_numbers_its_starts() -> None:
    first, second = ({"TORCHELASTIC_RUN_ID": f"mine.{number}", LAUNCHER: "1"} for number in range(2))
    begin(first, Path("runs/detect/train"))
    assert goes_on_in(first) is None
    assert goes_on_in(second) == Path("runs/detect/train")


def test_a_job_that_fails_before_it_begins_leaves_nothing() -> None:
    folder = Path("runs/detect/train")
    folder.mkdir(parents=True)
    with recorded(LauncherJob.of(CONFIG, TORCHRUN), folder):
        assert (folder / JOB).is_file()
        assert choose_folder(folder, DEFAULT) == folder, "one that was killed here goes on"
    assert list(folder.iterdir()) == []


KILLED = """
import os, signal
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.hooks import saver
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train

write = saver.write_checkpoint

def killed(folder, checkpoint):
    write(folder, checkpoint)
    if checkpoint.step == 2:
        os.kill(os.getpid(), signal.SIGKILL)

saver.write_checkpoint = killed
train(RunConfig.of(given["tree"]), Screen())
"""


def test_a_killed_job_goes_on_where_it_was(
    tiny_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchrun starts it again: with nothing but the name of the job and the settings in common."""
    words = (*TINY, f"data={tiny_set}", "steps=4", "saver.every_steps=1", *QUICK)
    config = run_config("starter", parse_words(words)[1])
    killed = Forked(
        forked.Job(code=KILLED, given={"tree": config.tree()}, cwd=tmp_path, environment=TORCHRUN)
    )
    assert killed.wait(60) == -signal.SIGKILL, killed.communicate()
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    outcome = train(config, Screen())
    assert (outcome.folder, outcome.summary["steps"]) == (Path("runs/detect/train"), 4)
    assert [path.name for path in Path("runs/detect").iterdir()] == ["train"]
    log = (outcome.folder / "train.log").read_text()
    assert "runs/detect/train: this job started here before, and continues" in log
    assert "continuing from this run's own checkpoint at step 2" in log
