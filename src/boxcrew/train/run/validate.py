"""Evaluation of a trained task on any data set with the same classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from boxcrew.core.errors import DataError
from boxcrew.data.config import BoxOptions, DataConfig
from boxcrew.data.loading.workers import Workers
from boxcrew.hardware.probe import usable_cores
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import EvalOptions, OpenOptions, TaskData
from boxcrew.train.output.outcome import print_scores
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.data import print_problems
from boxcrew.train.run.directory import is_run
from boxcrew.train.run.loading import Loaded, Which, load_task
from boxcrew.train.run.stored_settings import stored_settings


class ValConfig(BoxOptions):
    """The settings of `boxcrew val`."""

    run: Path  # a run directory, a weight file, or an exported file
    data: str | None = None  # a data set; None: the run's own
    format: str = "auto"
    split: str = "val"  # all: those of all splits
    weights: Which | Literal["both"] = "best"
    batch: int = Field(default=16, ge=1)
    device: str = "auto"
    engine: str | None = None  # that computes an exported file


def validate(config: ValConfig, screen: Screen) -> dict[str, Any]:
    """Evaluate the weights and return the report of each set of them, by name."""
    names: tuple[Which, ...] = ("best", "last") if config.weights == "both" else (config.weights,)
    reports: dict[str, Any] = {}
    for name in names:
        loaded = load_task(
            config.run, which=name, device=config.device, batch=config.batch, engine=config.engine
        )
        screen.info(loaded.engine.sentence())
        reports[name] = _evaluate(config, loaded, open_eval_data(config, loaded, screen), screen)
    return reports


def _evaluate(config: ValConfig, loaded: Loaded, task_data: TaskData, screen: Screen) -> dict[str, Any]:
    options = EvalOptions(batch=config.batch, workers=Workers(num=loaded.deployment.plan.loader_workers))
    with loaded.deployment:
        evaluation = task_data.evaluate(loaded.task, loaded.deployment.to_device, options)
    for problem in evaluation.skipped:
        screen.warn(f"not evaluated: {problem}")
    report = {**evaluation.to_json(), "weights": str(loaded.path), "engine": loaded.engine.tree()}
    print_scores(f"{loaded.path} on {config.split}: {evaluation.sentence()}", report, type(task_data), screen)
    return report


def open_eval_data(config: ValConfig, loaded: Loaded, screen: Screen) -> TaskData:
    """Open the data to evaluate on with the classes of the network, and report its problems."""
    kind = TASKS.get(loaded.config.name)
    has_settings = is_run(config.run) or (config.run / "config.yaml").is_file()
    run = stored_settings(config.run, screen.warn) if has_settings else None
    with screen.progress("checking the data") as progress:
        opening = OpenOptions(
            data=_data_config(config, run.data if run else None),
            # The seed decides which samples were held out in training.
            seed=loaded.seed,
            workers=max(1, int(usable_cores())),
            progress=progress,
        )
        task_data = kind.open(loaded.config, opening, loaded.facts)
    print_problems(task_data.problems, screen, rest="boxcrew data --json lists all")
    if config.data is not None and any(problem.kind == "made-split" for problem in task_data.problems):
        screen.info("split=all evaluates all of it, if none of it was used for training")
    return task_data


def _data_config(config: ValConfig, own: DataConfig | None) -> DataConfig:
    """Return the settings of the data to evaluate on, by default the run's `own`, read as in training."""
    options = {name: getattr(config, name) for name in BoxOptions.model_fields}
    if config.data is not None:
        return DataConfig(path=config.data, format=config.format, val=config.split, **options)
    if own is None:
        raise DataError(f"run={config.run}: a weight file has no data of its own", advice="give data=…")
    chosen = {name: value for name, value in options.items() if name in config.model_fields_set}
    return own.model_copy(update={"val": config.split, "strict": False, **chosen})
