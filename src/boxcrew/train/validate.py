"""Examining a trained detector on any data set that has its classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from boxcrew.core.config import Config, read_yaml
from boxcrew.core.errors import DataError
from boxcrew.data.scan import scan
from boxcrew.data.source import Record, Source, open_source
from boxcrew.data.workers import Workers
from boxcrew.evaluate.evaluator import Evaluator
from boxcrew.hardware.probe import usable_cores
from boxcrew.train.config import RunConfig
from boxcrew.train.data import say_problems
from boxcrew.train.loading import Loaded, Which, load_detector
from boxcrew.train.outcome import say_scores
from boxcrew.train.screen import Screen


class ValConfig(Config):
    """`boxcrew val`."""

    run: Path  # a run directory, or a weight file
    data: str | None = None  # a data set; None: the run's own
    format: str = "auto"
    split: str = "val"
    weights: Which | Literal["both"] = "best"
    batch: int = Field(default=16, ge=1)
    device: str = "auto"


def validate(config: ValConfig, screen: Screen) -> dict[str, Any]:
    """The report of each set of weights, by name."""
    names: tuple[Which, ...] = ("best", "last") if config.weights == "both" else (config.weights,)
    reports: dict[str, Any] = {}
    for name in names:
        loaded = load_detector(config.run, which=name, device=config.device, batch=config.batch)
        source, records = _records(config, loaded, screen)
        reports[name] = _examine(config, loaded, source, records, screen)
    return reports


def _examine(
    config: ValConfig, loaded: Loaded, source: Source, records: tuple[Record, ...], screen: Screen
) -> dict[str, Any]:
    workers = Workers(num=loaded.deployment.plan.loader_workers)
    evaluator = Evaluator(source=source, images=source, records=records, batch=config.batch, workers=workers)
    with loaded.deployment:
        evaluation = evaluator(loaded.predictor)
    for problem in evaluation.skipped:
        screen.warn(f"left out: {problem}")
    report = evaluation.report.to_json()
    report["milliseconds"] = evaluation.speed.milliseconds()
    report["weights"] = str(loaded.path)
    say_scores(f"{loaded.path} on {config.split}, {len(records)} images", report, screen)
    return report


def _records(config: ValConfig, loaded: Loaded, screen: Screen) -> tuple[Source, tuple[Record, ...]]:
    """The split, checked, with the detector's own numbering of the classes."""
    path, format_, seed = config.data, config.format, 0
    stored = config.run / "config.yaml"
    if path is None and stored.is_file():
        own = RunConfig.of(read_yaml(stored))
        path, format_, seed = own.data.path, own.data.format, own.seed
    if path is None:
        raise DataError(f"run={config.run}: a weight file has no data of its own", advice="give data=…")
    source = open_source(path, format=format_, seed=seed)
    with screen.progress("looking at the images") as progress:
        source = scan(source, workers=max(1, int(usable_cores())), progress=progress)
    if source.classes != loaded.detector.classes:
        source = source.with_classes(loaded.detector.classes)
    say_problems(source.problems, screen, rest="boxcrew data --json names all")
    return source, source.split(config.split)
