"""The data of a run: opened, checked, counted, and reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.data.check import check_images
from boxcrew.data.source import Record, Source, open_source
from boxcrew.train.config import DataConfig
from boxcrew.train.screen import Screen

SHOWN_PROBLEMS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class RunData:
    source: Source
    train: tuple[Record, ...]
    val: tuple[Record, ...]


def load_data(config: DataConfig, *, seed: int, workers: int, screen: Screen) -> RunData:
    """Opens the set, decodes every image once, and says what was found."""
    source = open_source(config.path, format=config.format, seed=seed)
    source, _ = check_images(source, workers=workers)
    data = RunData(source=source, train=source.split("train"), val=source.split(config.val))
    if not any(len(record.target) for record in data.train):
        raise DataError(f"{config.path}: no training image has a box", advice="annotate some images first")
    counts = ", ".join(f"{name} {len(records)}" for name, records in source.splits.items())
    boxes = sum(len(record.target) for records in source.splits.values() for record in records)
    contents = f"{counts} images, {boxes} boxes, {len(source.classes)} classes"
    screen.say(f"data: {config.path} ({source.format}): {contents}")
    say_problems(source, screen)
    return data


def say_problems(source: Source, screen: Screen) -> None:
    for problem in source.problems[:SHOWN_PROBLEMS]:
        screen.warn(str(problem))
    more = len(source.problems) - SHOWN_PROBLEMS
    if more > 0:
        screen.warn(f"and {more} more problems in the data")


def data_report(source: Source) -> dict[str, Any]:
    """What `data_report.json` holds."""
    return {
        "root": str(source.root),
        "format": source.format,
        "classes": list(source.classes),
        "splits": {name: _split_report(records, source.classes) for name, records in source.splits.items()},
        "problems": [
            {"where": problem.where, "what": problem.what, "action": problem.action}
            for problem in source.problems
        ],
    }


def _split_report(records: tuple[Record, ...], classes: tuple[str, ...]) -> dict[str, Any]:
    labels = np.concatenate([record.target.labels for record in records])
    counts = np.bincount(labels, minlength=len(classes))
    return {
        "images": len(records),
        "boxes": len(labels),
        "images_without_boxes": sum(len(record.target) == 0 for record in records),
        "boxes_by_class": dict(zip(classes, counts.tolist(), strict=True)),
    }
