"""A small set on disk, and whole runs of some seconds on it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import pytest

from boxcrew.core.config import merge
from boxcrew.data.detection.formats.shelf import ShelfSource
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import Source, open_source
from boxcrew.data.detection.writers import write_source
from boxcrew.train.config import RunConfig
from boxcrew.train.output.outcome import Outcome
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train
from tests.helpers.damage import VocSet
from tests.helpers.elastic import alone, start  # noqa: F401 - fixtures
from tests.helpers.forked import Forked, Job
from tests.helpers.once import MakeOnce
from tests.helpers.s3_fixtures import bucket, s3  # noqa: F401 - fixtures
from tests.helpers.tiny import BACKBONE

Choose = Callable[[Source], dict[str, Sequence[Record]]]
FIRST = {"train": 48, "val": 16, "test": 2}  # records of the embedded set to choose from


def _write_some(folder: Path, choose: Choose) -> Path:
    with mock.patch.object(ShelfSource, "num_images", FIRST):
        source = open_source("shelf")
    source.splits = choose(source)
    write_source(source, folder, format="voc")
    return folder


@pytest.fixture(scope="session")
def write_some() -> Callable[[Path, Choose], Path]:
    """`(folder, choose)`: writes the records of the embedded set that `choose` gives for each split."""
    return _write_some


@pytest.fixture(scope="session")
def photos(make_once: MakeOnce) -> Path:
    """Six images to train on and three to validate. Not to be changed."""

    def choose(source: Source) -> dict[str, Sequence[Record]]:
        return {"train": source.split("train")[:6], "val": source.split("val")[:3]}

    return make_once("photos", lambda folder: _write_some(folder / "set", choose)) / "set"


def _config(data: Path, out: Path, /, **changes: object) -> RunConfig:
    """A run of some seconds. With batch 4 of 6 images, no epoch ends where a batch does."""
    base = {
        "data": {"path": str(data)},
        "out": str(out),
        "steps": 8,
        "batch": 4,
        "detector": {"name": "ssdlite", "size": 64, "backbone": BACKBONE},
        "loader": {"workers": 0},
        "deploy": {"threads": 1},
        "optim": {"name": "momentum", "rate": 0.01, "ema": 0.9},
        "saver": {"every_steps": 3, "every_epochs": 100},
        "summaries": {"every_steps": 3, "tensorboard": False, "images": 0},
    }
    return RunConfig.of(merge(base, changes, choices={}))


def _run(data: Path, out: Path, /, **changes: object) -> Outcome:
    return train(_config(data, out, **changes), Screen())


@pytest.fixture(scope="session")
def config() -> Callable[..., RunConfig]:
    """`(data, out, **changes)`"""
    return _config


@pytest.fixture(scope="session")
def run() -> Callable[..., Outcome]:
    """`(data, out, **changes)`"""
    return _run


@pytest.fixture(scope="session")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped, with all that it can leave."""
    out = tmp_path_factory.mktemp("unstopped") / "run"
    _run(photos, out, summaries={"tensorboard": True, "images": 2, "graph": True})
    return out


@pytest.fixture
def real(shared_data: Path, tmp_path: Path) -> VocSet:
    """A part of a real set, without defects: 40 images to train on and 6 to validate."""
    whole, part = VocSet(shared_data / "groceries8_voc"), VocSet(tmp_path / "groceries")
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (part.root / folder).mkdir(parents=True)
    shutil.copy(whole.root / "classes.txt", part.root)
    for split, count in (("train", 40), ("val", 6)):
        names = whole.names(split)[:count]
        for name in names:
            shutil.copy(whole.image(name), part.image(name))
            shutil.copy(whole.page(name), part.page(name))
        part.enlist(split, *names)
    return part


@pytest.fixture(scope="session")
def in_child(home: Path) -> Callable[..., int]:
    """`(code, **given)`: runs code in a process of its own, which may be killed, and gives how it ended."""

    def run(code: str, **given: object) -> int:
        process = Forked(Job(code=code, given=given, environment={"HOME": str(home)}))
        sys.stderr.write(process.communicate()[1])
        return process.wait()

    return run
