"""The data of a run: opened, checked, counted, and reported."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from boxcrew.core.errors import DataError
from boxcrew.data.problem import ACTIONS, Problem
from boxcrew.data.scan import scan
from boxcrew.data.source import Record, Source, open_source
from boxcrew.detectors.objects import counted_objects
from boxcrew.train.config import DataConfig, RunConfig
from boxcrew.train.screen import Screen

SHOWN_PROBLEMS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class RunData:
    source: Source
    train: tuple[Record, ...]
    val: tuple[Record, ...]


def load_data(config: DataConfig, *, seed: int, workers: int, screen: Screen) -> RunData:
    """Opens the set, looks at every image once, and says what was found."""
    source = open_source(config.path, format=config.format, seed=seed)
    with screen.progress("looking at the images") as progress:
        source = scan(source, workers=workers, progress=progress)
    if config.strict:
        _require_clean(config, source)
    data = RunData(source=source, train=source.split("train"), val=source.split(config.val))
    if not any(len(record.target) for record in data.train):
        raise DataError(f"{config.path}: no training image has a box", advice="annotate some images first")
    counts = ", ".join(f"{name} {len(records)}" for name, records in source.splits.items())
    boxes = sum(len(record.target) for records in source.splits.values() for record in records)
    contents = f"{counts} images, {boxes} boxes, {len(source.classes)} classes"
    screen.say(f"data: {config.path} ({source.format}): {contents}")
    say_problems(source.problems, screen, rest="data_report.json names all")
    return data


def digest(data: RunData) -> str:
    """Of what training sees: equal for equal data, wherever it lies."""
    seen = hashlib.blake2b(digest_size=16)
    for record in data.train:
        seen.update(f"{record.key} {record.width} {record.height}".encode())
        seen.update(record.target.boxes.tobytes())
        seen.update(record.target.labels.tobytes())
    return seen.hexdigest()


def fit_to(data: RunData, config: RunConfig, screen: Screen) -> RunConfig:
    """The settings, with what they leave to the data (`auto`) settled for the objects to learn from."""
    sizes = [(record.width, record.height) for record in data.train]
    _, objects = counted_objects([record.target for record in data.train], sizes)
    detector, said = objects.fit(config.detector, config.transforms)
    if said:
        screen.say(said)
    return config.model_copy(update={"detector": detector})


def _require_clean(config: DataConfig, source: Source) -> None:
    found = [problem for problem in source.problems if problem.action != "noted"]
    if found:
        raise DataError(
            f"{config.path}: {len(found)} problems, and data.strict=true; the first: {found[0]}",
            advice=f"boxcrew data {config.path} --json names all of them",
        )


def say_problems(problems: Sequence[Problem], screen: Screen, *, rest: str) -> None:
    """A table of how many there are of each kind, then some by name: the first of every kind before the
    second of any. `rest` says where the others stand.
    """
    if len(problems) > 1:
        counts = Counter((problem.kind, problem.action) for problem in problems)
        rows = [
            (kind, *(str(counts[kind, action]) if counts[kind, action] else "" for action in ACTIONS))
            for kind in dict.fromkeys(problem.kind for problem in problems)
        ]
        screen.table("problems in the data", ("kind", *ACTIONS), rows)
    met: Counter[str] = Counter()
    turns = []
    for problem in problems:
        turns.append((met[problem.kind], problem))
        met[problem.kind] += 1
    for _, problem in sorted(turns, key=lambda turn: turn[0])[:SHOWN_PROBLEMS]:
        screen.warn(str(problem))
    more = len(problems) - SHOWN_PROBLEMS
    if more > 0:
        screen.warn(f"and {more} more problems in the data; {rest}")


def data_report(source: Source) -> dict[str, Any]:
    """What `data_report.json` holds."""
    return {
        "root": str(source.root),
        "format": source.format,
        "classes": list(source.classes),
        "splits": {name: _split_report(records, source.classes) for name, records in source.splits.items()},
        "problems": [problem.to_json() for problem in source.problems],
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
