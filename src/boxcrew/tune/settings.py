"""The settings of a study: what to search, for how long, and how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from boxcrew.core.config import Config, none_is_a_choice
from boxcrew.core.errors import UsageError
from boxcrew.train.config import Duration
from boxcrew.tune.record import On, Pruner, Sampler


class TuneConfig(Config):
    """The settings of `boxcrew tune`. All others are settings of every trial."""

    recipe: str | None = None
    """Recipe or YAML file whose settings are improved."""
    search: Any = "default"
    """Ready space (default, optimizer, augmentation or all), or settings with their ranges and values."""
    time: Duration | None = None
    """Time of the whole study, such as 2h."""
    trials: int | None = Field(default=None, ge=1)
    """Most trials, the recipe's own settings among them."""
    sampler: Sampler | Literal["auto"] = "auto"
    """Way to draw settings: tpe, cma, random or grid; auto takes tpe, and random for few trials."""
    pruner: Annotated[Pruner | Literal["auto"], none_is_a_choice] = "auto"
    """Way to stop bad trials early: halving, hyperband, median or none; auto takes halving, unless trials are
    too short for it."""
    workers: int = Field(default=1, ge=1)
    """Trials that are trained at once, each with such a part of this machine's cores."""
    on: On = "machine"
    """Where they are trained: machine, join (machines that run `boxcrew tune join`) or ray (a cluster)."""
    storage: str | None = None
    """Storage of Optuna that is kept up to date, such as sqlite:///study.db; none: a journal in the study."""
    out: Path | None = None
    """Directory of the study."""
    name: str = "study"
    """Its name under runs/tune, if out= is not given."""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """Settings of every trial."""

    @model_validator(mode="after")
    def _has_an_end(self) -> TuneConfig:
        if self.time is None and self.trials is None and self.sampler != "grid":
            raise UsageError("time= is missing", advice="boxcrew tune data=photos time=2h (or trials=30)")
        return self
