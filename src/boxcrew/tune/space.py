"""The space of a search: for each setting that varies, its range or choices, and when it matters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from boxcrew.core.config import Config, Tree, put
from boxcrew.core.errors import UsageError
from boxcrew.train.config import RunConfig
from boxcrew.train.run.stored_settings import flat

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Params = dict[str, Any]
"""The values of a trial by the names of their dimensions, as Optuna stores them."""

KEPT = {"optim": ("backbone_rate", "clip", "ema"), "schedule": ("warmup", "end")}
"""Settings that another optimizer or schedule keeps from the recipe; its others have their own defaults."""


class Dimension(Config):
    """A setting that varies: over choices, or over numbers from low to high."""

    target: str  # the dotted key of the setting
    name: str  # in Optuna's storage: the key, with a note if several dimensions have the same
    choices: tuple[Any, ...] = ()  # JSON values
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    log: bool = False
    whole: bool = False  # whether the numbers are integers
    only: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Values of other settings, with any of which this one matters."""

    @model_validator(mode="after")
    def _is_searchable(self) -> Self:
        if self.choices:
            if len(set(map(json.dumps, self.choices))) < max(2, len(self.choices)):
                raise UsageError(f"search.{self.target}: give two or more different values")
            return self
        if not self.low < self.high:
            raise UsageError(f"search.{self.target}: {self.low:g}..{self.high:g} has no values in between")
        if self.log and self.low <= 0:
            raise UsageError(f"search.{self.target}: a log range begins above zero, not at {self.low:g}")
        return self

    def matters(self, settings: Mapping[str, Any]) -> bool:
        """Return whether it has an effect with these settings (by dotted keys)."""
        return all(settings.get(key) in values for key, values in self.only.items())

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution([_stored(value) for value in self.choices])
        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def setting(self, value: Any) -> Any:
        """Return the value of the setting that a value in Optuna's storage stands for."""
        return next(choice for choice in self.choices if _stored(choice) == value) if self.choices else value

    def param(self, setting: Any) -> Any:
        """Return the value that the sampler sees for a setting; None if the setting is outside of the
        dimension.
        """
        if self.choices:
            return _stored(setting) if setting in self.choices else None
        is_number = isinstance(setting, int | float) and not isinstance(setting, bool)
        if not is_number or not self.low <= setting <= self.high:
            return None
        if self.step is not None:
            steps = (setting - self.low) / self.step
            return setting if math.isclose(steps, round(steps), abs_tol=1e-9) else None
        return setting

    def points(self) -> list[Any]:
        """Return all values, as they are stored; `UsageError` if there is no end of them."""
        if self.choices:
            return [_stored(value) for value in self.choices]
        if (self.step is None and not self.whole) or self.log:
            raise UsageError(
                f"search.{self.target}: a grid needs values, or a range with steps",
                advice=f"search.{self.target}=A,B,C or search.{self.target}=LOW..HIGH:STEP, or sampler=tpe",
            )
        step = self.step or 1.0
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        values = [self.low + i * step for i in range(count)]
        return [int(value) for value in values] if self.whole else values

    def __str__(self) -> str:
        if self.choices:
            text = ", ".join(str(_stored(value)) for value in self.choices)
        else:
            text = f"{self.low:g} to {self.high:g}"
            text += ", log" if self.log else f" in steps of {self.step:g}" if self.step else ""
        when = [f"{key} {' or '.join(map(str, values))}" for key, values in self.only.items()]
        return f"{text} (with {', '.join(when)})" if when else text


def _stored(value: Any) -> Any:
    """Return a choice as Optuna can store it: lists as JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


class Space(Config):
    """All dimensions of a search, those that others depend on first."""

    dimensions: tuple[Dimension, ...]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.dimensions:
            raise UsageError(
                "search: nothing varies", advice="search=default, or search.optim.rate=1e-4..1e-2:log"
            )
        return self

    def settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that a trial's values stand for, by dotted keys."""
        named = {dimension.name: dimension for dimension in self.dimensions}
        return {named[name].target: named[name].setting(value) for name, value in params.items()}

    def params_of(self, config: RunConfig) -> Params:
        """Return the values that stand for a run's settings, of those that are in the space."""
        settings = flat(config.tree())
        params = {
            dimension.name: dimension.param(settings.get(dimension.target))
            for dimension in self.dimensions
            if dimension.matters(settings)
        }
        return {name: value for name, value in params.items() if value is not None}


def with_settings(base: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a trial: those of the recipe with these, by dotted keys, in their place."""
    tree: Tree = {}
    for key, value in settings.items():
        put(tree, key, value)
    stored = base.tree()
    for group, names in KEPT.items():
        chosen = tree.get(group, {})
        if "name" in chosen and chosen["name"] != stored[group]["name"]:
            tree[group] = {**{name: stored[group][name] for name in names}, **chosen}
    return base.changed(tree)


def ordered(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """Return the dimensions so that each comes after those that it depends on."""
    rest, done = list(dimensions), list[Dimension]()
    while rest:
        waiting = {dimension.target for dimension in rest}
        free = [each for each in rest if not waiting & (each.only.keys() - {each.target})]
        if not free:
            raise UsageError(f"search.{rest[0].target}: depends on itself")
        done += free
        rest = [each for each in rest if each not in free]
    return tuple(done)
