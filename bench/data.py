"""Detection data, opened and scanned as training does it."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.config import Tree
from boxcrew.tasks.detection import DetectionData
from boxcrew.train.config import RunConfig
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import load_task_data


def open_data(folder: str | Path, *, workers: int = 1) -> DetectionData:
    config: Tree = {"epochs": 1, "data": str(folder)}
    task_data = load_task_data(RunConfig.of(config), workers=workers, screen=Screen())
    assert isinstance(task_data, DetectionData)
    return task_data
