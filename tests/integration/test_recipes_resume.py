"""Every recipe, and some variants: killed in the middle of an epoch and resumed, it is bit-equal to a run
that never stopped.

What a recipe is stays: detector, optimizer, schedule, transforms, what is frozen, threads. Smaller are the
set (three photos to train on, one to validate), the batch and the run (3 steps of 2), and the input of
detectors that take any size (64 px); those of a fixed size have fewer channels, and do 2 steps of 1. So has a
ResNet-50 from scratch. There is one evaluation, at the end. A recipe whose weights do not come with the
installation starts from scratch.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from boxcrew.core.config import Tree, to_yaml
from boxcrew.core.errors import UsageError
from boxcrew.core.stage import stage_folders
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source
from boxcrew.nets.packaged import PACKAGED
from boxcrew.nets.weights import find_weights, read_weights
from boxcrew.recipes import RECIPES
from boxcrew.tasks import detection, frechet_features
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained
from boxcrew.train.loop.checkpoint import newest_checkpoint
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume, train
from tests.helpers.narrow import narrowed
from tests.helpers.once import MakeOnce
from tests.helpers.runs import require_same_run, shown_without_times

WriteSome = Callable[[Path, Callable[[Source], dict[str, Sequence[Record]]]], Path]
InChild = Callable[..., int]
SIZE = 64

SMALL_HEAD = {"head_width": 32, "neck": 16, "proposals": 20, "proposal_method": "fast", "regions": 8}
SMALL_CROPS = {"crop_size": 32, "context": 2}

VARIANTS: dict[str, tuple[str, Tree]] = {
    **{name: (name, {}) for name in RECIPES.names()},
    "starter": ("starter", {"transforms": {"mosaic": 0.5, "mixup": 0.5, "mix_until": 0.6}}),
    **{name: (name, {"detector": SMALL_HEAD}) for name in ("fast_rcnn_vgg16", "sppnet_vgg16")},
    **{name: (name, {"detector": {**SMALL_HEAD, **SMALL_CROPS}}) for name in ("rcnn", "rcnn_vgg16")},
    "a language model": ("rnn", {"data": "shop_talk", "task": {"length": 16}}),
    "a WGAN-GP": (
        "gan",
        {
            "task": {"loss": "wasserstein", "penalty": 10.0, "critic_steps": 2, "spectral_norm": False},
            "steps": 4,  # the last of them has a line on the screen, and both phases
        },
    ),
}
"""Recipes as they are, and settings that take them another way."""

KILLED_IN_A_STEP = """
import os, signal, time
from pathlib import Path
from boxcrew.core.config import read_yaml
from boxcrew.train.config import RunConfig
from boxcrew.train.run import train
from boxcrew.train.output.screen import Screen
from boxcrew.train.loop.trainer import Trainer
from tests.helpers.narrow import narrowed

original = Trainer._update

def update(self, loss, phase):
    if self.step == given["step"]:
        # Checkpoints are written while the next steps run: without one there is nothing to resume from.
        written = "**/checkpoints/[0-9]*/COMMIT"
        while not any(int(file.parent.name) for file in Path(config.out).glob(written)):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, loss, phase)

Trainer._update = update
config = RunConfig.of(read_yaml(Path(given["settings"])))
with narrowed(config):
    train(config, Screen())
"""


@pytest.fixture(scope="module")
def few(write_some: WriteSome, make_once: MakeOnce) -> Path:
    def choose(source: Source) -> dict[str, Sequence[Record]]:
        return {"train": source.split("train")[:3], "val": source.split("val")[:1]}

    return make_once("few", lambda folder: write_some(folder / "set", choose)) / "set"


def shrunk(variant: str, data: Path, out: Path) -> RunConfig:
    name, others = VARIANTS[variant]
    settings: Tree = {
        "data": str(data),
        "out": str(out),
        "steps": 3,
        "batch": 2,
        "evaluation": {"every_epochs": 100},
        "saver": {"every_steps": 1},
        "summaries": {"every_steps": 1, "images": 0, "histograms": False},
    }
    settings |= others
    recipe = RECIPES.get(name)()
    if isinstance(recipe.init, Pretrained) and recipe.init.weights not in PACKAGED:  # would be downloaded
        settings["init"] = "scratch"
    try:
        return recipe.changed({**settings, "size": SIZE})
    except UsageError:  # a detector of one size
        return recipe.changed({**settings, "steps": 2, "batch": 1})


@pytest.fixture(autouse=True)
def judged_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """How well a GAN is judged is no matter here, and what judges it would learn for 400 steps. Nor are the
    training images that a trained detector is tried on.
    """
    monkeypatch.setattr(frechet_features, "STEPS", 1)
    monkeypatch.setattr(detection, "NUM_TRAIN_EVALUATED", 1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Cleared afterwards: some checkpoints here have hundreds of megabytes."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("name", VARIANTS)
def test_killed_and_resumed_it_is_as_if_never_stopped(
    name: str, few: Path, place: Path, in_child: InChild
) -> None:
    whole, out = place / "unstopped", place / "killed"
    killed = shrunk(name, few, out)
    assert killed.steps is not None
    settings = place / "settings.yaml"
    settings.write_text(to_yaml(killed))
    assert in_child(KILLED_IN_A_STEP, settings=str(settings), step=killed.steps - 1) == -signal.SIGKILL
    first = "" if not killed.task.stages() else stage_folders(killed.task.stages())[0]
    newest, _ = newest_checkpoint(out / first / "checkpoints")
    assert newest is not None
    assert 0 < newest.step < killed.steps
    with narrowed(killed):
        resume(out, {}, Screen())
        train(shrunk(name, few, whole), Screen())
    require_same_run(whole / first, out / first)
    wanted, weights = (read_weights(find_weights(run, which="best")).state for run in (whole, out))
    assert all(torch.equal(weights[name], value) for name, value in wanted.items())
    shown = [step for step, _ in shown_without_times(out / first)["loss"]]
    assert shown == list(range(1, killed.steps + 1))
