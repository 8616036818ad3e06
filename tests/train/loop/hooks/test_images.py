"""Images that a run shows in TensorBoard and writes to plots/."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from boxcrew.api import run_config
from boxcrew.core.types import Image
from boxcrew.data.images.reading import read_image
from boxcrew.tasks import frechet_features
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from tests.helpers.made_examples import write_classes
from tests.helpers.tiny import BACKBONE


def decoded(data: bytes) -> Image:
    return np.array(Pillow.open(io.BytesIO(data)))


def test_a_gan_shows_what_it_makes_after_each_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frechet_features, "STEPS", 1)
    write_classes(tmp_path / "photos", {"a": 10, "b": 10})
    run = tmp_path / "run"
    settings = {
        "data": str(tmp_path / "photos"),
        "out": str(run),
        "size": 32,
        "epochs": 2,
        "batch": 8,
        "task": {"width": 4, "latent": 6, "initializer": "he"},
        "optim": {"rate": 0.01},
        "trial": False,
        "loader": {"workers": 0},
        "deploy": {"threads": 1},
        "summaries": {"images": 1, "histograms": False},
    }
    assert train(run_config("gan", settings), Screen()).summary["steps"] == 4
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    shown = events.Images("val/made")
    assert [image.step for image in shown] == [2, 4]
    first, last = (decoded(image.encoded_image_string) for image in shown)
    assert first.shape == last.shape
    assert not np.array_equal(first, last)
    written = read_image(run / "plots" / "made.jpg")
    assert np.abs(written.astype(float) - last).mean() < np.abs(written.astype(float) - first).mean()


def test_a_detector_of_two_stages_shows_its_proposals(tiny_set: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = {
        "data": str(tiny_set),
        "out": str(run),
        "steps": 2,
        "batch": 2,
        "init": "scratch",
        "trainable": ["*"],
        "detector": {"backbone": BACKBONE, "size": 96, "neck": 16, "head_width": 32},
        "trial": False,
        "loader": {"workers": 0},
        "deploy": {"threads": 1},
        "summaries": {"images": 2, "histograms": False},
    }
    train(run_config("faster_rcnn_mobile", settings), Screen())
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    proposals = decoded(events.Images("train/proposals")[-1].encoded_image_string)
    assert proposals.shape == (96 + 2 * 8, 2 * 96 + 3 * 8, 3)  # two samples with gaps
    assert (run / "plots" / "train_batch_proposals.jpg").is_file()
