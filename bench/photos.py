"""A data set of photos, opened and looked at as training does it."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.config import Tree
from boxcrew.tasks.detection import DetectionData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import load_task_data


def photos(place: str | Path, *, workers: int = 1) -> DetectionData:
    config: Tree = {"epochs": 1, "data": str(place)}
    task_data = load_task_data(RunConfig.of(config), workers=workers, screen=Screen())
    assert isinstance(task_data, DetectionData)
    return task_data
