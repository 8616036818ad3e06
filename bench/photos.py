"""A data set of photos, opened and looked at as training does it."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.config import Tree
from boxcrew.tasks.detection import Detection
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import load_subject


def photos(place: str | Path, *, workers: int = 1) -> Detection:
    config: Tree = {"epochs": 1, "data": str(place)}
    subject = load_subject(RunConfig.of(config), workers=workers, screen=Screen())
    assert isinstance(subject, Detection)
    return subject
