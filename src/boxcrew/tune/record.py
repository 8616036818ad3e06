"""The record of a study: all that is decided at its start, in `study.json`. It never changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from boxcrew.core.config import Config
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_json
from boxcrew.hardware.machine import Machine
from boxcrew.train.config import RunConfig
from boxcrew.tune.cost import changes_cost, relative_cost
from boxcrew.tune.space import Space, with_settings

STUDY, TRIALS, REPEATED = "study.json", "trials", "repeats"

Sampler = Literal["tpe", "cma", "random", "grid"]
Pruner = Literal["halving", "hyperband", "median", "none"]
On = Literal["machine", "join", "ray"]

ETA = 3
"""One of so many trials continues from a rung to the next, which is so many times as long."""


class StudyRecord(Config):
    """A study as it was started."""

    format: Literal[1] = 1
    identity: str  # tells this study from all others
    base: dict[str, Any]  # the settings of trial 0, with the length and the plan that all trials share
    given: dict[str, Any]  # the settings of the recipe with those of the user
    space: Space
    sampler: Sampler
    pruner: Pruner
    metric: str
    higher_is_better: bool
    rungs: tuple[int, ...] = Field(
        min_length=1
    )  # steps at which trials are compared; the last is the full length
    seed: int
    workers: int
    on: On = "machine"  # where they are
    devices: tuple[str, ...]  # accelerators, of which each training at once has one; none: as the recipe says
    trials: int | None  # the most there may be
    time: float | None  # seconds that the study may take
    storage: str | None  # of Optuna; None: a journal in the directory of the study
    data_digest: str
    step_seconds: float | None  # of the recipe, as planned
    solve_seconds: float | None = None  # of its closed forms, as predicted; None if it has none
    machine: dict[str, Any]  # that a trial has
    base_cost: float | None  # of a step of the recipe, if the space has settings that change it
    versions: dict[str, str]

    @property
    def base_config(self) -> RunConfig:
        return RunConfig.of(self.base)

    def cost(self, settings: dict[str, Any]) -> float:
        """Return what a step with these settings is expected to cost, in steps of the recipe."""
        if self.base_cost is None or not changes_cost(settings):
            return 1.0
        try:
            config = with_settings(self.base_config, settings)
        except UsageError:  # the trial will say why
            return 1.0
        return relative_cost(config, self.base_cost, Machine.of(self.machine))

    def config(self, settings: dict[str, Any], rungs: tuple[int, ...], folder: Path) -> RunConfig:
        """Return the settings of a trial in `folder` that is compared after `rungs` steps."""
        config = with_settings(self.base_config, settings)
        length: dict[str, Any] = {"steps": rungs[-1], "out": str(folder)}
        if len(rungs) > 1:
            length["evaluation"] = {"at": [step / rungs[-1] for step in rungs], "every_epochs": None}
            length["saver"] = {"every_steps": rungs[0]}
        return config.changed(length)

    def rungs_for(self, cost: float) -> tuple[int, ...]:
        """Return the rungs of a trial whose steps take `cost` times those of the recipe: equal seconds."""
        least = range(1, len(self.rungs) + 1)
        return tuple(max(i, round(step / cost)) for i, step in zip(least, self.rungs, strict=True))

    def write(self, folder: Path) -> None:
        write_json(folder / STUDY, self.tree())


def read_study(folder: Path) -> StudyRecord:
    """Read the record of the study in a directory; `UsageError` if there is none."""
    if not (folder / STUDY).is_file():
        raise UsageError(
            f"study={folder}: not a study: it has no {STUDY}",
            advice="give the directory that 'boxcrew tune' named, such as runs/tune/study",
        )
    return StudyRecord.read(folder / STUDY, setting="study")
